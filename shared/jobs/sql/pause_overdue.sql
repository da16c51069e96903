-- The volume does not answer and its jobs have waited long: say so on the jobs themselves.
WITH paused AS (
    UPDATE tallystick.job
    SET state = 'PAUSED', owner = NULL, generation = generation + 1, revision = revision + 1,
        error_code = 'STORAGE_UNAVAILABLE', error_params = %(params)s,
        errors = tallystick.with_error(
            errors, 'STORAGE_UNAVAILABLE', %(params)s, attempts, %(errors_kept)s), updated_at = clock_timestamp()
    WHERE storage_id = %(storage_id)s
      AND state IN ('PENDING', 'RUNNING')
      AND due_at < statement_timestamp() - make_interval(secs => %(overdue_seconds)s)
    RETURNING job.*
), event AS (
    INSERT INTO tallystick.recovery_event
        (type, severity, source, done, namespace_id, job_id, operation, checkpoint, attempt,
         reason_code, reason_params)
    SELECT 'job-paused', 'warning', 'tick', false, namespace_id, id, operation, checkpoint, attempts,
           error_code, error_params
    FROM paused
)
SELECT id FROM paused
