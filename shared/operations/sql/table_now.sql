-- A table as it is now: the types of its columns, its primary key, and who refers to its rows. No row when
-- there is no such table.
SELECT
    (SELECT jsonb_object_agg(attname, format_type(atttypid, atttypmod))
     FROM pg_catalog.pg_attribute
     WHERE attrelid = found.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '') AS columns,
    (SELECT coalesce(jsonb_agg(attname), '[]')
     FROM pg_catalog.pg_index
     JOIN pg_catalog.pg_attribute ON attrelid = indrelid AND attnum = ANY (indkey)
     WHERE indrelid = found.oid AND indisprimary) AS key,
    (SELECT coalesce(jsonb_agg(jsonb_build_object(
                'schema', nspname,
                'table', child.relname,
                'columns', (SELECT jsonb_agg(attname ORDER BY place)
                            FROM unnest(conkey) WITH ORDINALITY AS own (number, place)
                            JOIN pg_catalog.pg_attribute ON attrelid = conrelid AND attnum = own.number),
                'references', (SELECT jsonb_agg(attname ORDER BY place)
                               FROM unnest(confkey) WITH ORDINALITY AS theirs (number, place)
                               JOIN pg_catalog.pg_attribute
                                 ON attrelid = confrelid AND attnum = theirs.number))), '[]')
     FROM pg_catalog.pg_constraint
     JOIN pg_catalog.pg_class AS child ON child.oid = conrelid
     JOIN pg_catalog.pg_namespace ON pg_namespace.oid = child.relnamespace
     WHERE contype = 'f' AND confrelid = found.oid) AS referring
FROM pg_catalog.pg_class AS found
WHERE found.relnamespace = to_regnamespace('tallystick') AND found.relname = %(table)s
