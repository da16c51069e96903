-- Jobs paused because something was missing, by the node that found it again. A pause that an operator
-- asked for carries no error code and is left alone.
WITH resumed AS (
    UPDATE tallystick.job
    SET state = 'PENDING', generation = generation + 1, revision = revision + 1,
        due_at = greatest(clock_timestamp(), lease_until),
        error_code = NULL, error_params = NULL, updated_at = clock_timestamp()
    WHERE state = 'PAUSED' AND error_code = %(code)s AND storage_id = %(storage_id)s
    RETURNING job.*
), event AS (
    INSERT INTO tallystick.recovery_event
        (type, severity, source, done, namespace_id, job_id, operation, checkpoint, attempt, reason_code)
    SELECT 'job-resumed', 'info', 'tick', true, namespace_id, id, operation, checkpoint, attempts, %(code)s
    FROM resumed
)
SELECT id FROM resumed
