-- Tables of a name, whatever their schema and the case of its letters: what somebody may have meant.
SELECT nspname AS schema, relname AS name
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE lower(relname) = lower(%(name)s) AND relkind IN ('r', 'p')
  AND nspname <> 'information_schema' AND left(nspname, 3) <> 'pg_'
ORDER BY nspname, relname
LIMIT 10
