SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = %(name)s) AS there
