-- Open jobs that somebody should look at, the longest in trouble first. Ages are counted here: instants of two
-- clocks are never compared. Each half has an index of open jobs; together in one condition they would have none.
SELECT job.id, job.operation, job.kind, namespace.name AS namespace, job.storage_id, job.state, job.max_bytes,
       job.bytes, job.takeovers, job.error_code, job.error_params,
       extract(epoch FROM clock_timestamp() - job.updated_at)::float8 AS age_seconds,
       extract(epoch FROM clock_timestamp() - job.due_at)::float8 AS overdue_seconds
FROM (
    SELECT * FROM tallystick.job WHERE state IN ('PAUSED', 'FAILED')
    UNION ALL
    SELECT * FROM tallystick.job
    WHERE state IN ('PENDING', 'RUNNING')
      AND (due_at < statement_timestamp() - make_interval(secs => %(overdue_seconds)s)
           OR takeovers >= %(takeovers)s)
) AS job
JOIN tallystick.namespace ON namespace.id = job.namespace_id
ORDER BY job.updated_at, job.id
LIMIT %(limit)s
