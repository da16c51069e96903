-- Of what a condition calls, what may answer otherwise at another time. Immutable functions do not. Of the server's
-- own stable ones these depend on settings that are pinned, and on nothing else: they compare, shift, convert
-- and print. A text that is read as a time may say now.
SELECT DISTINCT format('%%I.%%I(%%s)', space.nspname, call.proname, pg_get_function_identity_arguments(call.oid)) AS call
FROM pg_proc AS call JOIN pg_namespace AS space ON space.oid = call.pronamespace
WHERE (call.oid = ANY (%(functions)s::oid[])
       OR call.oid IN (SELECT oprcode FROM pg_operator WHERE oid = ANY (%(operators)s::oid[])))
  AND call.provolatile <> 'i'
  AND NOT (call.provolatile = 's' AND space.nspname = 'pg_catalog' AND call.pronargs > 0
           AND NOT 'timetz'::regtype = ANY (call.proargtypes::oid[])
           AND (call.prosrc ~ '^(date|timestamp|timestamptz)_(eq|ne|lt|le|gt|ge|cmp)_(date|timestamp|timestamptz)$'
                OR call.proname IN (
                    'timestamptz_pl_interval', 'timestamptz_mi_interval', 'interval_pl_timestamptz',
                    'date_trunc', 'date_part', 'extract', 'date_add', 'date_subtract', 'timezone', 'timestamptz',
                    'timestamp', 'date', 'time', 'to_char', 'to_date', 'to_timestamp', 'to_number',
                    'concat', 'concat_ws', 'format', 'quote_literal', 'quote_nullable', 'array_to_string',
                    'to_json', 'to_jsonb', 'in_range', 'text')))
UNION
SELECT 'a text as ' || format_type(type.oid, NULL)
FROM pg_type AS type
WHERE type.oid = ANY (%(types)s::oid[])
  AND type.oid = ANY ('{date,time,timetz,timestamp,timestamptz,date[],time[],timetz[],timestamp[],timestamptz[],tsrange,tstzrange,daterange,tsmultirange,tstzmultirange,datemultirange,tsrange[],tstzrange[],daterange[],tsmultirange[],tstzmultirange[],datemultirange[]}'::regtype[])
ORDER BY 1
