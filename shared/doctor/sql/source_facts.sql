-- Who we are in the source, and what it says of itself; how far a standby has come has a statement of its own.
SELECT current_user::text AS role, clock_timestamp() AS now,
       current_setting('max_standby_streaming_delay') AS streaming_delay,
       pg_has_role('pg_read_all_stats', 'USAGE') AS sees_activity
