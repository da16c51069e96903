-- Who we are in the source, and whether it is a standby and how far behind. A standby that has replayed all it
-- received is not behind, however long ago the last transaction was.
SELECT current_user::text AS role, clock_timestamp() AS now, pg_is_in_recovery() AS standby,
       CASE WHEN pg_is_in_recovery() AND pg_last_wal_receive_lsn() IS DISTINCT FROM pg_last_wal_replay_lsn()
            THEN extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp())::float8
            ELSE 0 END AS lag_seconds,
       current_setting('max_standby_streaming_delay') AS streaming_delay,
       pg_has_role('pg_read_all_stats', 'USAGE') AS sees_activity
