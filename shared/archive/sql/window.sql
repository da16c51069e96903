-- Where a window may end: at the instant asked for, but before the source's own clock (the instant may come from
-- another clock), and before the oldest transaction that is running: its rows may carry times from its
-- beginning on. Workers of the server bring rows in as clients do; only a vacuum, which may take hours, does not.
-- Some transactions cannot be seen: those of other users without pg_read_all_stats, those of sessions with
-- track_activities off, and on a standby all that run on its primary. Then the end keeps a longer distance.
WITH activity AS (
    SELECT min(xact_start) AS oldest,
           count(*) FILTER (WHERE state = 'disabled' OR backend_type IS NULL AND usesysid IS NOT NULL) > 0
               OR pg_is_in_recovery() AS hidden
    FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND datname = current_database()
      AND backend_type IS DISTINCT FROM 'autovacuum worker'
), bound AS (
    SELECT %(cutoff_at)s::timestamptz AS asked, oldest, hidden,
           now() - make_interval(secs => CASE WHEN hidden THEN %(hidden_margin)s::float8 ELSE %(margin)s::float8 END) AS newest
    FROM activity
), ending AS (
    SELECT bound.*, least(asked, newest, oldest) AS ends FROM bound
)
SELECT ends::text AS instant,
       (ends AT TIME ZONE %(time_zone)s)::text AS local,
       ((ends AT TIME ZONE %(time_zone)s)::date)::text AS date,
       floor(extract(epoch FROM ends) * %(per_second)s)::bigint::text AS number,
       current_database()::text AS database,
       current_setting('server_encoding') AS encoding,
       hidden,
       CASE WHEN ends = asked THEN NULL
            WHEN ends = oldest THEN 'running'
            WHEN pg_is_in_recovery() THEN 'standby'
            WHEN hidden THEN 'hidden'
            ELSE 'clock' END AS held_back
FROM ending
