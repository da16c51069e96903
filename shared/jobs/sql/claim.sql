-- Find one due job and make it ours, atomically. The search must compare due_at with a value that is
-- constant for the statement, or the partial index cannot serve it; leases count from the real clock.
-- A due time beyond everything we ever store was written by a clock that had jumped: it is due.
WITH near AS MATERIALIZED (
    SELECT id, state
    FROM tallystick.job
    WHERE state IN ('PENDING', 'RUNNING')
      AND due_at <= statement_timestamp()
      AND operation = ANY (%(operations)s)
      AND (storage_id IS NULL OR storage_id = %(storage_id)s)
      AND (%(job_id)s::uuid IS NULL OR id = %(job_id)s::uuid)
    ORDER BY due_at
    LIMIT 1
    FOR UPDATE SKIP LOCKED
), far AS MATERIALIZED (
    SELECT id, state
    FROM tallystick.job
    WHERE NOT EXISTS (SELECT FROM near)
      AND state IN ('PENDING', 'RUNNING')
      AND due_at > statement_timestamp() + make_interval(secs => %(farthest_seconds)s)
      AND operation = ANY (%(operations)s)
      AND (storage_id IS NULL OR storage_id = %(storage_id)s)
      AND (%(job_id)s::uuid IS NULL OR id = %(job_id)s::uuid)
    ORDER BY due_at
    LIMIT 1
    FOR UPDATE SKIP LOCKED
), found AS (
    SELECT id, state = 'RUNNING' AS expired FROM near
    UNION ALL
    SELECT id, state = 'RUNNING' AS expired FROM far
), lease AS (
    -- Starts are counted here and not at the end, so a unit that kills its process is counted too;
    -- each takeover of the same unit gets a longer lease, in case it was only slow.
    SELECT found.id, found.expired,
           found.expired AND job.takeovers >= %(takeovers_max)s AS looping,
           clock_timestamp() + make_interval(
               secs => %(lease_seconds)s * greatest(1, job.takeovers + found.expired::integer)) AS ends
    FROM found JOIN tallystick.job USING (id)
), claimed AS (
    UPDATE tallystick.job
    SET state       = CASE WHEN looping THEN 'FAILED' ELSE 'RUNNING' END,
        owner       = CASE WHEN looping THEN NULL ELSE %(owner)s::uuid END,
        due_at      = CASE WHEN looping THEN due_at ELSE lease.ends END,
        lease_until = CASE WHEN looping THEN NULL ELSE lease.ends END,
        error_code  = CASE WHEN looping THEN 'CRASH_LOOP' END,
        error_params = CASE WHEN looping THEN jsonb_build_object('takeovers', takeovers) END,
        errors      = CASE WHEN looping THEN tallystick.with_error(
                          errors, 'CRASH_LOOP', jsonb_build_object('takeovers', takeovers), attempts,
                          %(errors_kept)s) ELSE errors END,
        revision    = revision + looping::integer,
        generation  = generation + 1,
        attempts    = attempts + (NOT looping)::integer,
        takeovers   = takeovers + (expired AND NOT looping)::integer,
        page_size   = CASE WHEN expired THEN greatest(1, page_size / 2) ELSE page_size END,
        updated_at  = clock_timestamp()
    FROM lease
    WHERE job.id = lease.id
    RETURNING job.*, lease.expired AS reclaimed
), event AS (
    INSERT INTO tallystick.recovery_event
        (type, severity, source, done, namespace_id, job_id, operation, checkpoint, attempt,
         reason_code, reason_params, reclaimed)
    SELECT CASE state WHEN 'FAILED' THEN 'job-failed' ELSE 'job-reclaimed-after-restart' END,
           CASE state WHEN 'FAILED' THEN 'error' ELSE 'warning' END,
           'tick', state <> 'FAILED', namespace_id, id, operation, checkpoint, attempts,
           error_code, error_params, true
    FROM claimed
    WHERE reclaimed
)
SELECT claimed.*, namespace.enabled AS namespace_enabled,
       policy.revision AS policy_now, policy.enabled AS policy_enabled
FROM claimed
JOIN tallystick.namespace ON namespace.id = claimed.namespace_id
LEFT JOIN tallystick.policy ON policy.namespace_id = claimed.namespace_id AND policy.kind = claimed.kind
