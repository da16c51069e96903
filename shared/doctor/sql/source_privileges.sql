-- What we may do with tables of the source that are there.
SELECT current_user::text AS role, space.nspname::text AS schema, class.relname::text AS name,
       has_schema_privilege(space.oid, 'USAGE') AS schema_usage,
       has_table_privilege(class.oid, 'SELECT') AS table_select
FROM unnest(%(schemas)s::text[], %(names)s::text[]) AS asked (schema, name)
JOIN pg_namespace AS space ON space.nspname = asked.schema
JOIN pg_class AS class ON class.relnamespace = space.oid AND class.relname = asked.name
ORDER BY space.nspname, class.relname
