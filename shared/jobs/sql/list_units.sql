SELECT seq, generation, sha256, bytes, roots, evidence, settled_at
FROM tallystick.unit
WHERE job_id = %(job_id)s
ORDER BY seq DESC
LIMIT %(limit)s
