"""When work becomes due: namespaces, retention policies, plans, and the jobs made from plans."""
