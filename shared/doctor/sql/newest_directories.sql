-- What the newest jobs of a volume are believed to have written. Where bytes are set aside, a file may be there that
-- is not recorded yet.
SELECT job.namespace_id || '-' || job.id AS directory, ledger.bytes
FROM tallystick.job
JOIN tallystick.ledger ON ledger.storage_id = job.storage_id
                      AND ledger.directory = job.namespace_id || '-' || job.id
WHERE job.storage_id = %(storage_id)s AND job.operation = 'archive' AND job.reserved = 0
ORDER BY job.created_at DESC, job.id DESC
LIMIT %(limit)s
