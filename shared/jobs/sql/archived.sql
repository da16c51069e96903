-- Every archive of a volume that the database has confirmed anything of, oldest first.
SELECT job.*, namespace.name AS namespace
FROM tallystick.job
JOIN tallystick.namespace ON namespace.id = job.namespace_id
WHERE job.operation = 'archive' AND job.storage_id = %(storage_id)s AND job.batches > 0
ORDER BY job.created_at, job.id
