-- What writing into tables depends on, beside what their facts say; one row each in the order asked.
WITH asked AS (
    SELECT *
    FROM unnest(%(schemas)s::text[], %(names)s::text[]) WITH ORDINALITY AS asked (schema, name, place)
), relation AS (
    SELECT asked.*, class.oid
    FROM asked
    LEFT JOIN pg_namespace AS space ON space.nspname = asked.schema
    LEFT JOIN pg_class AS class ON class.relnamespace = space.oid AND class.relname = asked.name
)
SELECT coalesce(has_any_column_privilege(oid, 'INSERT'), false) AS writable,
    coalesce((
        SELECT jsonb_agg(tgname ORDER BY tgname)
        FROM pg_trigger
        -- Of those that fire here (4 is INSERT), without what foreign keys are made of.
        WHERE tgrelid = relation.oid AND NOT tgisinternal AND tgenabled IN ('O', 'A') AND tgtype & 4 <> 0
    ), '[]') AS triggers,
    coalesce((
        SELECT jsonb_agg(rulename ORDER BY rulename)
        FROM pg_rewrite
        -- '3' is INSERT.
        WHERE ev_class = relation.oid AND ev_type = '3' AND ev_enabled IN ('O', 'A')
    ), '[]') AS rules,
    -- A foreign key is enforced by triggers of its own; a superuser can switch them off and forget them.
    coalesce((
        SELECT jsonb_agg(DISTINCT conname ORDER BY conname)
        FROM pg_trigger JOIN pg_constraint ON pg_constraint.oid = tgconstraint
        WHERE tgrelid = relation.oid AND conrelid = relation.oid AND contype = 'f'
          AND tgisinternal AND tgenabled NOT IN ('O', 'A')
    ), '[]') AS unenforced,
    coalesce((
        SELECT jsonb_agg(attname ORDER BY attnum)
        FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid
        WHERE attrelid = relation.oid AND attnum > 0 AND NOT attisdropped
          AND (atthasdef OR attidentity <> '' OR typdefault IS NOT NULL)
    ), '[]') AS filled,
    coalesce((
        SELECT jsonb_agg(jsonb_build_object(
                   'column', attname,
                   'schema', space.nspname,
                   'name', sequence.relname,
                   'rising', seqincrement > 0,
                   'last', CASE WHEN seqincrement > 0 THEN seqmax ELSE seqmin END
               ) ORDER BY attnum)
        FROM pg_depend
        JOIN pg_class AS sequence ON sequence.oid = objid AND sequence.relkind = 'S'
        JOIN pg_namespace AS space ON space.oid = sequence.relnamespace
        JOIN pg_sequence ON seqrelid = sequence.oid
        JOIN pg_attribute ON attrelid = refobjid AND attnum = refobjsubid
        -- An identity column depends on its sequence internally, a serial one automatically.
        WHERE classid = 'pg_class'::regclass AND refclassid = 'pg_class'::regclass
          AND refobjid = relation.oid AND refobjsubid > 0 AND deptype IN ('a', 'i')
          AND atttypid IN ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype)
    ), '[]') AS sequences
FROM relation
ORDER BY place
