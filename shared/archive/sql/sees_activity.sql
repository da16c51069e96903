-- Whether this user sees when other users' transactions began; without it the end of a window cannot
-- stay before the oldest of them.
SELECT pg_has_role('pg_read_all_stats', 'USAGE') AS sees
