-- An operator's action. It moves the generation, so a holder that is still running can record nothing
-- more; and it never makes a job due before the end of a lease that was taken, so no second worker
-- starts while the first may still be at it.
UPDATE tallystick.job
SET state       = %(new_state)s,
    owner       = NULL,
    generation  = generation + 1,
    revision    = revision + 1,
    due_at      = greatest(clock_timestamp(), lease_until),
    takeovers   = 0,
    failures    = 0,
    error_code  = CASE WHEN %(new_state)s = 'ABANDONED' THEN error_code END,
    error_params = CASE WHEN %(new_state)s = 'ABANDONED' THEN error_params END,
    max_bytes   = coalesce(%(max_bytes)s::bigint, max_bytes),
    closed_at   = CASE WHEN %(new_state)s = 'ABANDONED' THEN clock_timestamp() END,
    updated_at  = clock_timestamp()
WHERE id = %(job_id)s
RETURNING job.*
