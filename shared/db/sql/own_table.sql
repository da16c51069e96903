-- Who controls a table of ours in a database of somebody else, and what was attached to it. A stranger who owns the
-- schema can put another table under the name; a trigger, a rule or a policy runs with the rights of whoever
-- writes. One row, or none where there is no such schema.
SELECT relation.oid IS NOT NULL AS there,
    coalesce((
        SELECT jsonb_agg(rolname ORDER BY rolname)
        FROM pg_roles
        WHERE pg_roles.oid IN (space.nspowner, relation.relowner) AND NOT rolsuper AND rolname <> current_user
    ), '[]') AS strangers,
    relation.relkind = 'r' AND relation.relpersistence = 'p' AND NOT relation.relispartition AND NOT EXISTS (
        SELECT FROM pg_inherits WHERE relation.oid IN (inhrelid, inhparent)) AS plain,
    coalesce((
        SELECT jsonb_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod),
                                   CASE WHEN attnotnull THEN 'NOT NULL' END) ORDER BY attnum)
        FROM pg_attribute
        WHERE attrelid = relation.oid AND attnum > 0 AND NOT attisdropped
    ), '[]') AS columns,
    coalesce((
        SELECT jsonb_agg(tgname ORDER BY tgname) FROM pg_trigger
        WHERE tgrelid = relation.oid AND NOT tgisinternal
    ), '[]') AS triggers,
    coalesce((
        SELECT jsonb_agg(rulename ORDER BY rulename) FROM pg_rewrite WHERE ev_class = relation.oid
    ), '[]') AS rules,
    coalesce((
        SELECT jsonb_agg(polname ORDER BY polname) FROM pg_policy WHERE polrelid = relation.oid
    ), '[]') AS policies
FROM pg_namespace AS space
LEFT JOIN pg_class AS relation ON relation.relnamespace = space.oid AND relation.relname = %(name)s
WHERE space.nspname = %(schema)s
