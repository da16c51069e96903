-- About how many rows share one value of a column where most do, as the last ANALYZE found it. No row where
-- nobody has analyzed the table.
SELECT class.reltuples::float8
       * greatest((most_common_freqs)[1], CASE WHEN n_distinct > 0 THEN 1 / n_distinct END, 0) AS rows
FROM pg_stats
JOIN pg_namespace AS space ON space.nspname = schemaname
JOIN pg_class AS class ON class.relnamespace = space.oid AND class.relname = tablename
WHERE schemaname = %(schema)s AND tablename = %(table)s AND attname = %(column)s
ORDER BY inherited DESC
LIMIT 1
