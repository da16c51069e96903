-- The share of rows without a value in a column, as the last ANALYZE found it.
SELECT null_frac AS share
FROM pg_stats
WHERE schemaname = %(schema)s AND tablename = %(table)s AND attname = %(column)s
ORDER BY inherited DESC
LIMIT 1
