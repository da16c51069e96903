-- How large a table is, all its partitions included.
SELECT coalesce(sum(pg_relation_size(coalesce(part.relid, pg_class.oid))), 0)::bigint AS bytes
FROM pg_class
JOIN pg_namespace ON pg_namespace.oid = relnamespace
LEFT JOIN LATERAL pg_partition_tree(pg_class.oid) AS part ON true
WHERE nspname = %(schema)s AND relname = %(table)s
