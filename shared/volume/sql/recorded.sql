-- What the database believes of one directory: its ledger entry, its job, and the digests of the units
-- from one position on.
SELECT
    (SELECT bytes FROM tallystick.ledger
     WHERE storage_id = %(storage_id)s AND directory = %(directory)s) AS bytes,
    job.id AS job_id, job.state, job.batches, job.last_sha256, job.reserved,
    (SELECT jsonb_object_agg(seq, sha256) FROM tallystick.unit
     WHERE job_id = job.id AND seq >= %(first)s AND seq <= %(last)s) AS units
FROM (SELECT) AS one
LEFT JOIN tallystick.job ON job.id = %(job_id)s::uuid AND job.storage_id = %(storage_id)s
