-- Make the jobs of due plans. Whether a plan has an open job is asked before the limit, or sixteen plans
-- blocked by failed jobs would starve all others. Missed periods merge: the next run counts from now.
WITH kinds AS (
    SELECT * FROM jsonb_to_recordset(%(kinds)s) AS kind (kind text, namespace text, definition jsonb)
), due AS MATERIALIZED (
    SELECT plan.*, namespace.name AS namespace
    FROM tallystick.plan
    JOIN tallystick.namespace ON namespace.id = plan.namespace_id
    WHERE plan.enabled
      AND namespace.enabled
      AND plan.operation = ANY (%(operations)s)
      AND (plan.next_run_at <= statement_timestamp()
           OR plan.next_run_at > statement_timestamp() + make_interval(secs => %(farthest_seconds)s))
      AND (plan.operation <> 'archive' OR EXISTS (
          SELECT FROM kinds
          JOIN tallystick.policy USING (kind)
          WHERE kinds.kind = plan.kind
            AND coalesce(kinds.namespace, namespace.name) = namespace.name
            AND policy.namespace_id = plan.namespace_id
            AND policy.enabled
            AND policy.revision = plan.policy_revision))
      AND NOT EXISTS (
          SELECT FROM tallystick.job
          WHERE job.plan_id = plan.id AND job.state IN ('PENDING', 'RUNNING', 'PAUSED', 'FAILED'))
    ORDER BY plan.next_run_at
    LIMIT %(plans_max)s
    FOR UPDATE OF plan SKIP LOCKED
), policies AS MATERIALIZED (
    -- Held until the job is there, so no policy changes between the look at it and the job bound to it.
    SELECT policy.*
    FROM due JOIN tallystick.policy ON policy.namespace_id = due.namespace_id AND policy.kind = due.kind
    WHERE policy.enabled AND policy.revision = due.policy_revision
    FOR SHARE OF policy SKIP LOCKED
), made AS (
    INSERT INTO tallystick.job
        (operation, namespace_id, kind, plan_id, plan_revision, policy_revision, storage_id, batch_size,
         page_size, max_bytes, input)
    SELECT due.operation, due.namespace_id, due.kind, due.id, due.revision, due.policy_revision,
           due.storage_id, due.batch_size, due.batch_size, due.max_bytes,
           CASE due.operation WHEN 'archive' THEN jsonb_build_object(
               'namespace', due.namespace,
               'definition', kinds.definition,
               'scope', due.scope,
               'policy', jsonb_build_object('revision', policies.revision, 'after_days', policies.after_days),
               'cutoff_at', to_char((clock_timestamp() - make_interval(hours => 24 * policies.after_days))
                                    AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
               'after', CASE WHEN due.scope = 'new' THEN ended.cursor END,
               'archived_before', CASE WHEN due.scope = 'new' THEN coalesce(ended.roots - pruned.since, 0) ELSE 0 END,
               'pruned_before', pruned.roots,
               'previous', previous.link)
           WHEN 'prune' THEN jsonb_build_object('from', stood.checkpoint, 'given_up', stood.given_up)
           ELSE '{}' END
    FROM due
    LEFT JOIN policies ON policies.namespace_id = due.namespace_id AND policies.kind = due.kind
    LEFT JOIN kinds ON kinds.kind = due.kind
    LEFT JOIN LATERAL (
        SELECT job.checkpoint -> 'cursor' AS cursor,
               (job.input ->> 'archived_before')::bigint + job.roots AS roots,
               coalesce((job.input ->> 'pruned_before')::bigint, 0) AS pruned_before
        FROM tallystick.job
        WHERE job.plan_id = due.id AND job.state = 'SUCCEEDED'
          AND job.input -> 'definition' = kinds.definition
          AND job.id = (
              SELECT latest.id FROM tallystick.job AS latest
              WHERE latest.plan_id = due.id AND latest.closed_at IS NOT NULL AND latest.state = 'SUCCEEDED'
              ORDER BY latest.closed_at DESC, latest.id LIMIT 1)
    ) AS ended ON true
    LEFT JOIN LATERAL (
        SELECT jsonb_build_object('job', job.id, 'tail', job.last_sha256) AS link
        FROM tallystick.job
        -- Only archives have tails: for another operation every closed job would be read to find none.
        WHERE due.operation = 'archive'
          AND job.plan_id = due.id AND job.closed_at IS NOT NULL AND job.last_sha256 IS NOT NULL
        ORDER BY job.closed_at DESC, job.id LIMIT 1
    ) AS previous ON true
    -- What was removed since that job was made is no longer there to be counted.
    LEFT JOIN LATERAL (
        SELECT coalesce(max(gone.roots), 0) AS roots,
               coalesce(max(gone.roots), 0) - coalesce(ended.pruned_before, 0) AS since
        FROM tallystick.pruned AS gone
        WHERE gone.namespace_id = due.namespace_id AND gone.kind = due.kind
    ) AS pruned ON true
    -- Pruning goes on where it ended on this volume. A file that an operator gave up as damaged, by
    -- abandoning the job it had failed, is passed over.
    LEFT JOIN LATERAL (
        SELECT coalesce(job.checkpoint, job.input -> 'from') AS checkpoint,
               CASE WHEN job.state = 'ABANDONED' AND job.error_code = 'FILE_CHECK_FAILED'
                    THEN job.error_params END AS given_up
        FROM tallystick.job
        WHERE due.operation = 'prune' AND job.plan_id = due.id AND job.storage_id = due.storage_id
          AND job.closed_at IS NOT NULL
        ORDER BY job.closed_at DESC, job.id LIMIT 1
    ) AS stood ON true
    WHERE due.operation <> 'archive' OR policies.revision IS NOT NULL
    ON CONFLICT (plan_id) WHERE plan_id IS NOT NULL AND state IN ('PENDING', 'RUNNING', 'PAUSED', 'FAILED')
    DO NOTHING
    RETURNING id, plan_id
), moved AS (
    UPDATE tallystick.plan
    SET next_run_at = clock_timestamp() + make_interval(secs => interval_seconds)
    FROM made
    WHERE plan.id = made.plan_id
), first_ticked AS (
    INSERT INTO tallystick.last_tick (operation)
    SELECT operation FROM unnest(%(ticked)s::text[]) AS operation
    WHERE NOT EXISTS (SELECT FROM tallystick.last_tick AS known WHERE known.operation = operation.operation)
    ON CONFLICT DO NOTHING
), ticked AS (
    -- A row that another tick holds is left to it: it says the same, and nobody waits for anybody here.
    -- A fresh note is left as it is: a tick that schedules nothing then waits for no disk.
    UPDATE tallystick.last_tick
    SET ticked_at = clock_timestamp()
    FROM (SELECT operation FROM tallystick.last_tick WHERE operation = ANY (%(ticked)s)
            AND ticked_at < clock_timestamp() - make_interval(secs => %(noted_seconds)s)
          FOR UPDATE SKIP LOCKED) AS free
    WHERE last_tick.operation = free.operation
)
-- One row for each job, and one without an id where there is none: how long the oldest due job has waited
-- is told in any case. Jobs made just now are not seen here, and have not waited.
SELECT made.id, waited.oldest_due_seconds
FROM (
    SELECT coalesce(extract(epoch FROM statement_timestamp() - min(due_at)), 0)::float8
               AS oldest_due_seconds
    FROM tallystick.job
    WHERE state IN ('PENDING', 'RUNNING') AND due_at <= statement_timestamp()
) AS waited
LEFT JOIN made ON true
