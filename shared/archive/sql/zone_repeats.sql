-- Whether clocks in a zone were put forward or back in the last year, so that an hour of local time came twice.
SELECT count(DISTINCT (day AT TIME ZONE %(time_zone)s) - (day AT TIME ZONE 'UTC')) > 1 AS repeats
FROM generate_series(now() - interval '1 year', now(), interval '1 day') AS day
