-- Whether this server is a standby, and how far it has come: the one rule for ticks and for doctor. It has
-- replayed up to an instant once a later transaction came through. On an idle primary none does: then it
-- is enough that all it received is replayed, while a receiver streams and has heard from the primary since.
-- A role without pg_read_all_stats sees that there is a receiver, not what it does.
WITH place AS (
    SELECT pg_is_in_recovery() AS standby,
           pg_last_xact_replay_timestamp() AS replayed_at,
           coalesce(pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn(), false) AS replayed_all,
           (SELECT coalesce(status, 'hidden') FROM pg_stat_wal_receiver) AS receiver,
           (SELECT last_msg_send_time FROM pg_stat_wal_receiver) AS heard_at
), rule AS (
    SELECT place.*,
           replayed_all AND receiver IS NOT DISTINCT FROM 'streaming'
               AND coalesce(heard_at >= %(ends)s::timestamptz, %(ends)s::timestamptz IS NULL) AS caught_up
    FROM place
)
SELECT standby,
       NOT standby OR caught_up OR coalesce(replayed_at >= %(ends)s::timestamptz, false) AS reached,
       standby AND replayed_all AND NOT caught_up AND receiver IS NOT DISTINCT FROM 'hidden' AS hidden,
       CASE WHEN caught_up OR NOT standby THEN 0
            WHEN replayed_all AND receiver IS NOT DISTINCT FROM 'hidden' THEN NULL
            ELSE extract(epoch FROM clock_timestamp() - replayed_at)::float8 END AS lag_seconds
FROM rule
