"""One file per kind of work, each an ``Operation`` of four functions, and the registry of them all."""
