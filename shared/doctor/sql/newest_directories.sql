-- What the newest jobs of a volume are believed to have written. Where bytes are set aside, a file may be there that
-- is not recorded yet. Of closed jobs no more than the newest are looked at, whether they wrote anything or not.
SELECT job.namespace_id || '-' || job.id AS directory, ledger.bytes
FROM (
    (SELECT storage_id, namespace_id, id, created_at FROM tallystick.job
     WHERE closed_at IS NOT NULL AND operation = 'archive' AND storage_id = %(storage_id)s AND reserved = 0
     ORDER BY created_at DESC, id DESC
     LIMIT %(looked_at)s)
    UNION ALL
    SELECT storage_id, namespace_id, id, created_at FROM tallystick.job
    WHERE state IN ('PENDING', 'RUNNING') AND operation = 'archive' AND storage_id = %(storage_id)s AND reserved = 0
    UNION ALL
    SELECT storage_id, namespace_id, id, created_at FROM tallystick.job
    WHERE state IN ('PAUSED', 'FAILED') AND operation = 'archive' AND storage_id = %(storage_id)s AND reserved = 0
) AS job
JOIN tallystick.ledger ON ledger.storage_id = job.storage_id
                      AND ledger.directory = job.namespace_id || '-' || job.id
ORDER BY job.created_at DESC, job.id DESC
LIMIT %(limit)s
