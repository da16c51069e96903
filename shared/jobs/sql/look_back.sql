-- What became of a settle whose answer was lost or that found no row: the job as it is, and the unit
-- recorded at the position, if any.
SELECT job.*, unit.owner AS unit_owner, unit.sha256 AS unit_sha256
FROM tallystick.job
LEFT JOIN tallystick.unit ON unit.job_id = job.id AND unit.seq = %(unit_seq)s
WHERE job.id = %(job_id)s
