-- The end of a window that somebody asks for now: an instant, or so many seconds ago; never in the future,
-- where rows may still come to lie before it.
SELECT least(ends, now())::text AS cutoff_at, ends > now() AS future
FROM (SELECT coalesce(%(until)s::timestamptz, now() - make_interval(secs => %(seconds)s)) AS ends) AS asked
