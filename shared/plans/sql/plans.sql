SELECT plan.*, namespace.name AS namespace, job.id AS active_job_id, job.state AS active_job_state,
       policy.revision AS policy_now, opened.late_rows, opened.late_unknown,
       opened.roots_at_start, opened.window_counts
FROM tallystick.plan
JOIN tallystick.namespace ON namespace.id = plan.namespace_id
LEFT JOIN tallystick.job ON job.plan_id = plan.id AND job.state IN ('PENDING', 'RUNNING', 'PAUSED', 'FAILED')
LEFT JOIN tallystick.policy ON policy.namespace_id = plan.namespace_id AND policy.kind = plan.kind
-- Of the newest job that has looked; null where it is not known how many rows came late.
LEFT JOIN LATERAL (
    SELECT (latest.opening ->> 'late_rows')::bigint AS late_rows,
           latest.opening -> 'late_unknown' AS late_unknown,
           (latest.opening ->> 'roots_at_start')::bigint AS roots_at_start,
           latest.checkpoint -> 'window' AS window_counts
    FROM (
        SELECT opening, checkpoint, created_at FROM tallystick.job AS open_job
        WHERE open_job.id = job.id AND open_job.opening IS NOT NULL
        UNION ALL
        (SELECT opening, checkpoint, created_at FROM tallystick.job AS closed_job
         WHERE closed_job.plan_id = plan.id AND closed_job.closed_at IS NOT NULL
         ORDER BY closed_at DESC, closed_job.id LIMIT 1)
    ) AS latest
    WHERE latest.opening IS NOT NULL
    ORDER BY created_at DESC
    LIMIT 1
) AS opened ON true
WHERE (%(namespace_id)s::uuid IS NULL OR plan.namespace_id = %(namespace_id)s)
ORDER BY namespace.name, plan.operation, plan.kind
