-- The partitions of a table in which no foreign key on some columns refers to another table, or to a
-- partition of that one. Only what holds rows counts; found is the number of all of them.
WITH parent AS (
    SELECT pg_class.oid FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = %(parent_schema)s AND relname = %(parent_name)s
), child AS (
    SELECT pg_class.oid FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = %(child_schema)s AND relname = %(child_name)s
)
SELECT nspname AS schema, relname AS name, count(*) OVER () AS found
FROM child
CROSS JOIN LATERAL pg_partition_tree(child.oid) AS part
JOIN pg_class ON pg_class.oid = part.relid
JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE isleaf AND NOT EXISTS (
    SELECT FROM pg_constraint
    WHERE conrelid = part.relid AND contype = 'f'
      AND (confrelid IN (SELECT oid FROM parent)
           OR confrelid IN (SELECT relid FROM parent CROSS JOIN LATERAL pg_partition_tree(parent.oid)))
      AND %(columns)s::text[] = (
          SELECT array_agg(attname::text ORDER BY position)
          FROM unnest(conkey) WITH ORDINALITY AS named (number, position)
          JOIN pg_attribute ON attrelid = conrelid AND attnum = named.number))
ORDER BY nspname, relname
LIMIT %(limit)s
