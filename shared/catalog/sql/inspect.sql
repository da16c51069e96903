-- What the catalog says of some tables, one row each in the order asked. The search path is pinned to
-- pg_catalog, so names of types come qualified wherever they need to be.
WITH RECURSIVE asked AS (
    SELECT *
    FROM unnest(%(schemas)s::text[], %(names)s::text[]) WITH ORDINALITY AS asked (schema, name, place)
), relation AS (
    SELECT asked.*, space.oid AS space_oid, class.oid, class.relkind::text AS kind,
           class.relpersistence::text AS persistence, class.relispartition AS is_part
    FROM asked
    LEFT JOIN pg_namespace AS space ON space.nspname = asked.schema
    LEFT JOIN pg_class AS class ON class.relnamespace = space.oid AND class.relname = asked.name
), part AS (
    -- Not pg_partition_tree: that locks every partition, and waits where one is being changed.
    SELECT oid AS whole, oid AS relid FROM relation WHERE kind = 'p'
    UNION
    SELECT part.whole, inhrelid FROM part JOIN pg_inherits ON inhparent = part.relid
)
SELECT schema, name, oid IS NOT NULL AS found, oid::bigint AS identity, kind, persistence,
    kind = 'r' AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = oid) AS has_heirs,
    kind = 'p' AND EXISTS (
        SELECT FROM part JOIN pg_class ON pg_class.oid = part.relid
        WHERE part.whole = relation.oid AND relkind = 'f') AS has_foreign_parts,
    -- Of the whole table: that is what locking it asks for, and the lock comes before the snapshot.
    has_table_privilege(oid, 'SELECT') AND has_schema_privilege(space_oid, 'USAGE') AS readable,
    row_security_active(oid) AS row_security,
    -- The tables whose rows include this one's: what it is a partition of, or inherits from, at any depth.
    coalesce((
        WITH RECURSIVE up AS (
            SELECT inhparent FROM pg_inherits WHERE inhrelid = relation.oid
            UNION
            SELECT pg_inherits.inhparent FROM up JOIN pg_inherits ON pg_inherits.inhrelid = up.inhparent
        )
        SELECT jsonb_agg(jsonb_build_object('schema', nspname, 'table', relname) ORDER BY nspname, relname)
        FROM up
        JOIN pg_class ON pg_class.oid = up.inhparent
        JOIN pg_namespace ON pg_namespace.oid = relnamespace
    ), '[]') AS ancestors,
    (SELECT jsonb_build_object('schema', nspname, 'table', relname)
     FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
     WHERE relation.is_part AND pg_class.oid = pg_partition_root(relation.oid)) AS whole,
    coalesce((
        SELECT jsonb_agg(jsonb_build_object(
                   'name', attname,
                   'type', format_type(atttypid, atttypmod),
                   -- With a modifier that is none: a cast to plain `character` or `bit` would cut to one.
                   'base', format_type(base.oid, -1),
                   'base_kind', CASE WHEN base.typtype = 'e' THEN 'enum'
                                     WHEN base.typtype IN ('b', 'r', 'm')
                                          AND base.typnamespace = 'pg_catalog'::regnamespace
                                         THEN base.typcategory::text
                                     ELSE 'other' END,
                   'collates', (SELECT format('%%I.%%I', nspname, collname)
                                FROM pg_collation JOIN pg_namespace ON pg_namespace.oid = collnamespace
                                WHERE pg_collation.oid = attcollation),
                   'exact', coalesce((SELECT collisdeterministic FROM pg_collation
                                      WHERE pg_collation.oid = attcollation), true),
                   -- Of a constraint that is NOT VALID (18 and later) the column may hold NULLs from before.
                   'not_null', attnotnull AND NOT EXISTS (
                       SELECT FROM pg_constraint
                       WHERE conrelid = attrelid AND contype = 'n' AND NOT convalidated
                         AND conkey = ARRAY[attnum]),
                   'generated', CASE WHEN attgenerated <> '' THEN (
                       SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef
                       WHERE adrelid = attrelid AND adnum = attnum) END,
                   'identity', attidentity::text,
                   'collation', (SELECT format('%%I.%%I', nspname, collname)
                                 FROM pg_collation JOIN pg_namespace ON pg_namespace.oid = collnamespace
                                 WHERE pg_collation.oid = attcollation AND attcollation <> declared.typcollation),
                   'labels', (SELECT jsonb_agg(enumlabel ORDER BY enumsortorder)
                              FROM pg_enum WHERE enumtypid = base.oid)
               ) ORDER BY attnum)
        FROM pg_attribute
        JOIN pg_type AS declared ON declared.oid = atttypid
        CROSS JOIN LATERAL (
            WITH RECURSIVE down AS (
                SELECT t.oid, t.typtype, t.typbasetype, t.typnamespace, t.typcategory
                FROM pg_type AS t WHERE t.oid = atttypid
                UNION ALL
                SELECT t.oid, t.typtype, t.typbasetype, t.typnamespace, t.typcategory
                FROM down JOIN pg_type AS t ON t.oid = down.typbasetype
                WHERE down.typtype = 'd'
            )
            SELECT * FROM down WHERE typtype <> 'd'
        ) AS base
        WHERE attrelid = relation.oid AND attnum > 0 AND NOT attisdropped
    ), '[]') AS columns,
    coalesce((
        SELECT jsonb_agg(jsonb_build_object(
                   'name', itself.relname,
                   'columns', (SELECT jsonb_agg(attname ORDER BY position)
                               FROM unnest(indkey::int2[]) WITH ORDINALITY AS part (number, position)
                               JOIN pg_attribute ON attrelid = indrelid AND attnum = part.number
                               WHERE position <= indnkeyatts),
                   -- Partial, invalid and deferrable indexes also call themselves unique.
                   'unique', indisunique AND indisvalid AND indimmediate AND indpred IS NULL
                             AND indexprs IS NULL,
                   'primary', indisprimary,
                   'ordered', amname = 'btree',
                   -- Old rows have a time, so an index of the rows that have one serves them all.
                   'usable', indisvalid AND indexprs IS NULL AND amname IN ('btree', 'hash') AND coalesce(
                       pg_get_expr(indpred, indrelid) = (
                           SELECT format('(%%I IS NOT NULL)', attname) FROM pg_attribute
                           WHERE attrelid = indrelid AND attnum = indkey[0]),
                       indpred IS NULL)
               ) ORDER BY indexrelid)
        FROM pg_index
        JOIN pg_class AS itself ON itself.oid = indexrelid
        JOIN pg_am ON pg_am.oid = itself.relam
        WHERE indrelid = relation.oid
    ), '[]') AS indexes,
    coalesce((
        SELECT jsonb_agg(jsonb_build_object(
                   'name', conname,
                   'columns', (SELECT jsonb_agg(attname ORDER BY position)
                               FROM unnest(conkey) WITH ORDINALITY AS part (number, position)
                               JOIN pg_attribute ON attrelid = conrelid AND attnum = part.number),
                   'schema', space.nspname,
                   'table', parent.relname,
                   'validated', convalidated,
                   -- A temporal key (18 and later) ties a row to one whose period contains its own.
                   'period', coalesce((to_jsonb(pg_constraint) ->> 'conperiod')::boolean, false),
                   -- Releases before 18 enforce every key and have no such column.
                   'enforced', coalesce((to_jsonb(pg_constraint) ->> 'conenforced')::boolean, true),
                   'references', (SELECT jsonb_agg(attname ORDER BY position)
                                  FROM unnest(confkey) WITH ORDINALITY AS part (number, position)
                                  JOIN pg_attribute ON attrelid = confrelid AND attnum = part.number)
               ) ORDER BY conname)
        FROM pg_constraint
        JOIN pg_class AS parent ON parent.oid = confrelid
        JOIN pg_namespace AS space ON space.oid = parent.relnamespace
        -- A key to a partitioned table is there once more for each partition; those count where a
        -- partition itself is asked about.
        WHERE conrelid = relation.oid AND contype = 'f'
          AND (conparentid = 0 OR NOT parent.relispartition
               OR (space.nspname, parent.relname) IN (SELECT schema, name FROM asked))
    ), '[]') AS foreign_keys,
    coalesce((
        SELECT jsonb_agg(jsonb_build_object(
                   'schema', space.nspname,
                   'table', child.relname,
                   'name', conname,
                   'columns', (SELECT jsonb_agg(attname ORDER BY position)
                               FROM unnest(conkey) WITH ORDINALITY AS part (number, position)
                               JOIN pg_attribute ON attrelid = conrelid AND attnum = part.number),
                   'references', (SELECT jsonb_agg(attname ORDER BY position)
                                  FROM unnest(confkey) WITH ORDINALITY AS part (number, position)
                                  JOIN pg_attribute ON attrelid = confrelid AND attnum = part.number),
                   'ancestors', coalesce((
                       WITH RECURSIVE up AS (
                           SELECT inhparent FROM pg_inherits WHERE inhrelid = child.oid
                           UNION
                           SELECT pg_inherits.inhparent
                           FROM up JOIN pg_inherits ON pg_inherits.inhrelid = up.inhparent
                       )
                       SELECT jsonb_agg(jsonb_build_object('schema', nspname, 'table', relname)
                                        ORDER BY nspname, relname)
                       FROM up
                       JOIN pg_class ON pg_class.oid = up.inhparent
                       JOIN pg_namespace ON pg_namespace.oid = relnamespace
                   ), '[]'),
                   -- The whole table of which the one that refers is a partition.
                   'whole', (SELECT jsonb_build_object('schema', nspname, 'table', relname)
                             FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
                             WHERE child.relispartition AND pg_class.oid = pg_partition_root(child.oid))
               ) ORDER BY space.nspname, child.relname, conname)
        FROM pg_constraint
        JOIN pg_class AS child ON child.oid = conrelid
        JOIN pg_namespace AS space ON space.oid = child.relnamespace
        -- A partition has the keys of its table again; one of its own stays where no other table shows it.
        -- A key to one partition of this table is one to rows of this table.
        WHERE contype = 'f' AND (
            (confrelid = relation.oid AND (conparentid = 0 OR NOT child.relispartition))
            OR (relation.kind = 'p' AND conparentid = 0 AND confrelid IN (
                    SELECT relid FROM part WHERE part.whole = relation.oid)))
    ), '[]') AS referenced_by
FROM relation
ORDER BY place
