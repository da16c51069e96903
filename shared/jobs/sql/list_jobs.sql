-- Newest first. `before` names the last job already seen. Each namespace has its newest jobs on an index and gives
-- no more than a page of them, so the jobs that are not shown are not read.
WITH seen AS MATERIALIZED (
    SELECT created_at, id FROM tallystick.job WHERE id = %(before)s::uuid
    UNION ALL
    SELECT 'infinity', 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid WHERE %(before)s::uuid IS NULL
)
SELECT job.*
FROM tallystick.namespace
CROSS JOIN LATERAL (
    SELECT *
    FROM tallystick.job AS newest
    WHERE newest.namespace_id = namespace.id
      AND (newest.created_at, newest.id) < (SELECT created_at, id FROM seen)
    ORDER BY newest.created_at DESC, newest.id DESC
    LIMIT %(limit)s
) AS job
WHERE namespace.id = coalesce(%(namespace_id)s::uuid, namespace.id)
ORDER BY job.created_at DESC, job.id DESC
LIMIT %(limit)s
