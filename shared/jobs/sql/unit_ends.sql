-- The first unit of a job and the last one: a timeline tells when work began and how far it came.
(SELECT seq, settled_at FROM tallystick.unit WHERE job_id = %(job_id)s ORDER BY seq LIMIT 1)
UNION
(SELECT seq, settled_at FROM tallystick.unit WHERE job_id = %(job_id)s ORDER BY seq DESC LIMIT 1)
ORDER BY seq
