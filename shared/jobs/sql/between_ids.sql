-- Jobs by the beginning of their id; two are enough to know that it is not unique.
SELECT id FROM tallystick.job WHERE id BETWEEN %(first)s AND %(last)s ORDER BY id LIMIT 2
