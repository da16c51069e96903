-- Where a job's window may end. Rows of a transaction that is still running may carry times from its
-- beginning on, so the end does not come after the oldest one's start (where that may be seen), and on
-- a standby not after what has been replayed. Workers of the server bring rows in as clients do; only
-- a vacuum, which may take hours, does not.
WITH bound AS (
    SELECT least(
        %(cutoff_at)s::timestamptz,
        (SELECT min(xact_start) FROM pg_stat_activity
         WHERE pid <> pg_backend_pid() AND backend_type <> 'autovacuum worker'
           AND datname = current_database()),
        (SELECT min(prepared) FROM pg_prepared_xacts WHERE database = current_database())
    ) AS ends
)
SELECT ends::text AS instant,
       (ends AT TIME ZONE %(time_zone)s)::text AS local,
       ((ends AT TIME ZONE %(time_zone)s)::date)::text AS date,
       floor(extract(epoch FROM ends) * %(per_second)s)::bigint::text AS number,
       current_database()::text AS database,
       current_setting('server_encoding') AS encoding,
       pg_is_in_recovery()
           AND coalesce(pg_last_xact_replay_timestamp() < ends, true) AS behind
FROM bound
