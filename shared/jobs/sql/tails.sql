-- Of each kind the newest job whose chain has a confirmed tail.
SELECT DISTINCT ON (namespace.name, job.kind) job.*, namespace.name AS namespace
FROM tallystick.job
JOIN tallystick.namespace ON namespace.id = job.namespace_id
WHERE job.operation = 'archive' AND job.last_sha256 IS NOT NULL
ORDER BY namespace.name, job.kind, job.created_at DESC, job.id DESC
