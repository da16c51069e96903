-- Of each kind the newest job whose chain has a confirmed tail. Closed jobs are many: the index is asked for the
-- newest one of a kind, and then for the kind after it. Open jobs are few, and each way of being open has an index.
WITH RECURSIVE closed AS (
    (SELECT job.namespace_id, job.kind, job.id
     FROM tallystick.job
     WHERE job.closed_at IS NOT NULL AND job.operation = 'archive' AND job.last_sha256 IS NOT NULL
     ORDER BY job.namespace_id, job.kind, job.created_at DESC, job.id DESC
     LIMIT 1)
    UNION ALL
    SELECT following.*
    FROM closed
    CROSS JOIN LATERAL (
        SELECT job.namespace_id, job.kind, job.id
        FROM tallystick.job
        WHERE job.closed_at IS NOT NULL AND job.operation = 'archive' AND job.last_sha256 IS NOT NULL
          AND (job.namespace_id, job.kind) > (closed.namespace_id, closed.kind)
        ORDER BY job.namespace_id, job.kind, job.created_at DESC, job.id DESC
        LIMIT 1
    ) AS following
), newest AS (
    SELECT id FROM closed
    UNION ALL
    SELECT id FROM tallystick.job
    WHERE state IN ('PENDING', 'RUNNING') AND operation = 'archive' AND last_sha256 IS NOT NULL
    UNION ALL
    SELECT id FROM tallystick.job
    WHERE state IN ('PAUSED', 'FAILED') AND operation = 'archive' AND last_sha256 IS NOT NULL
)
SELECT DISTINCT ON (namespace.name, job.kind) job.*, namespace.name AS namespace
FROM newest
JOIN tallystick.job ON job.id = newest.id
JOIN tallystick.namespace ON namespace.id = job.namespace_id
ORDER BY namespace.name, job.kind, job.created_at DESC, job.id DESC
