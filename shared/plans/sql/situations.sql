-- How every plan stands with its open job, or how one job stands with its plan. Ages are counted here:
-- instants of two clocks are never compared.
WITH asked AS MATERIALIZED (
    SELECT plan.id AS plan_id, job.id AS job_id
    FROM tallystick.plan
    LEFT JOIN tallystick.job
           ON job.plan_id = plan.id AND job.state IN ('PENDING', 'RUNNING', 'PAUSED', 'FAILED')
    WHERE %(job_id)s::uuid IS NULL
      AND (%(namespace_id)s::uuid IS NULL OR plan.namespace_id = %(namespace_id)s)
    UNION ALL
    SELECT plan_id, id FROM tallystick.job WHERE id = %(job_id)s::uuid
)
SELECT asked.plan_id, asked.job_id,
       coalesce(job.operation, plan.operation) AS operation,
       coalesce(job.kind, plan.kind) AS kind,
       coalesce(job.storage_id, plan.storage_id) AS storage_id,
       namespace.id AS namespace_id, namespace.name AS namespace, namespace.enabled AS namespace_enabled,
       plan.enabled AS plan_enabled, plan.policy_revision AS plan_policy_revision,
       plan.scope AS plan_scope,
       extract(epoch FROM plan.next_run_at - clock_timestamp())::float8 AS next_run_in,
       policy.revision AS policy_now, policy.enabled AS policy_enabled, policy.after_days,
       coalesce(job.batch_size, plan.batch_size) AS batch_size,
       coalesce(job.max_bytes, plan.max_bytes) - coalesce(job.bytes, 0) AS job_bytes_left,
       volume.used_bytes + coalesce((
           SELECT sum(other.reserved)::bigint FROM tallystick.job AS other
           WHERE other.storage_id = volume.storage_id AND other.reserved > 0), 0) AS volume_bytes,
       job.state AS job_state, job.error_code AS job_code, job.attempts AS job_attempts,
       job.policy_revision AS job_policy_revision,
       extract(epoch FROM job.due_at - clock_timestamp())::float8 AS job_due_in,
       extract(epoch FROM clock_timestamp() - job.updated_at)::float8 AS job_unmoved,
       job.input -> 'definition' AS job_definition,
       coalesce(job.checkpoint -> 'cursor', job.input -> 'after') AS job_cursor,
       job.opening #>> '{shape,time_sort}' AS job_time_sort,
       last.roots AS last_roots, last.definition AS last_definition, last.cursor AS last_cursor,
       last.cutoff AS last_cutoff, last.time_sort AS last_time_sort,
       clock_timestamp() AS asked_at,
       last_tick.ticked_at,
       extract(epoch FROM clock_timestamp() - last_tick.ticked_at)::float8 AS ticked_ago,
       paced.roots AS paced_roots, paced.seconds AS paced_seconds
FROM asked
LEFT JOIN tallystick.plan ON plan.id = asked.plan_id
LEFT JOIN tallystick.job ON job.id = asked.job_id
JOIN tallystick.namespace ON namespace.id = coalesce(job.namespace_id, plan.namespace_id)
LEFT JOIN tallystick.policy
       ON policy.namespace_id = namespace.id AND policy.kind = coalesce(job.kind, plan.kind)
LEFT JOIN tallystick.volume ON volume.storage_id = coalesce(job.storage_id, plan.storage_id)
LEFT JOIN tallystick.last_tick ON last_tick.operation = coalesce(job.operation, plan.operation)
LEFT JOIN LATERAL (
    SELECT succeeded.id, succeeded.roots, succeeded.input -> 'definition' AS definition,
           succeeded.checkpoint -> 'cursor' AS cursor, succeeded.opening ->> 'cutoff' AS cutoff,
           succeeded.opening #>> '{shape,time_sort}' AS time_sort
    FROM tallystick.job AS succeeded
    WHERE succeeded.plan_id = asked.plan_id AND succeeded.closed_at IS NOT NULL
      AND succeeded.state = 'SUCCEEDED'
    ORDER BY succeeded.closed_at DESC, succeeded.id
    LIMIT 1
) AS last ON true
-- The pace is that of the newest units of the open job, else of the last one: roots settled after the first
-- of them, and the time that took, waits between ticks and all.
LEFT JOIN LATERAL (
    SELECT sum(recent.roots) FILTER (WHERE recent.place > 1)::bigint AS roots,
           extract(epoch FROM max(recent.settled_at) - min(recent.settled_at))::float8 AS seconds
    FROM (
        SELECT newest.roots, newest.settled_at, row_number() OVER (ORDER BY newest.seq) AS place
        FROM (
            SELECT seq, roots, settled_at, max(settled_at) OVER () AS ended
            FROM (
                SELECT unit.seq, unit.roots, unit.settled_at
                FROM tallystick.unit
                WHERE unit.job_id = CASE WHEN job.batches > 1 THEN job.id ELSE last.id END
                ORDER BY unit.seq DESC
                LIMIT %(pace_units)s
            ) AS units
        ) AS newest
        WHERE newest.settled_at >= newest.ended - make_interval(secs => %(pace_seconds)s)
    ) AS recent
) AS paced ON true
ORDER BY namespace.name, operation, kind
