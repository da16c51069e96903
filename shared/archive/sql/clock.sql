-- The clock of the source as a timestamp holds it: microseconds since 2000.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - 946684800000000 AS now
