-- Who we are in the control database, and what we may do there. Asked of the catalog by number, so that a
-- user who may not even look into the schema gets an answer. Only what is pruned is ever deleted.
SELECT current_user::text AS role, current_database()::text AS database, clock_timestamp() AS now,
       space.oid IS NOT NULL AS schema_there,
       EXISTS (SELECT FROM pg_class WHERE relnamespace = space.oid AND relname = 'migration') AS migrations_there,
       has_database_privilege(current_database(), 'CREATE') AS may_create,
       coalesce(has_schema_privilege(space.oid, 'USAGE'), false) AS schema_usage,
       coalesce((SELECT jsonb_agg(jsonb_build_object('table', relname, 'privilege', privilege)
                                  ORDER BY relname, place)
                 FROM pg_class,
                      unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) WITH ORDINALITY AS asked (privilege, place)
                 WHERE relnamespace = space.oid AND relkind = 'r'
                   AND (relname <> 'migration' OR privilege = 'SELECT')
                   AND (privilege <> 'DELETE' OR relname = ANY (%(pruned)s))
                   AND NOT has_table_privilege(pg_class.oid, privilege)), '[]') AS missing
FROM (SELECT) AS one
LEFT JOIN pg_namespace AS space ON space.nspname = 'tallystick'
