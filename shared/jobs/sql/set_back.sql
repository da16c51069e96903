-- The other end of a claim: the unit could not be done. Same fence, same single statement. What may
-- already be on the volume stays reserved until a unit is settled. Without an event, the last one says it already.
WITH settled AS (
    UPDATE tallystick.job
    SET state       = %(new_state)s,
        owner       = NULL,
        lease_until = NULL,
        due_at      = clock_timestamp() + make_interval(secs => %(delay_seconds)s),
        failures    = %(failures)s,
        page_size   = %(page_size)s,
        revision    = revision + (%(new_state)s IN ('FAILED', 'PAUSED'))::integer,
        error_code  = %(code)s,
        error_params = %(params)s,
        errors      = CASE WHEN %(event_type)s::text IS NULL THEN errors
                           ELSE tallystick.with_error(errors, %(code)s, %(params)s, attempts, %(errors_kept)s) END,
        updated_at  = clock_timestamp()
    WHERE id = %(job_id)s AND owner = %(owner)s AND generation = %(generation)s
      AND state = 'RUNNING' AND due_at > clock_timestamp()
      AND batches = %(seq)s AND last_sha256 IS NOT DISTINCT FROM %(tail)s
    RETURNING job.*
), event AS (
    INSERT INTO tallystick.recovery_event
        (type, severity, source, done, namespace_id, job_id, operation, checkpoint, attempt,
         next_attempt_at, reason_code, reason_params, reclaimed)
    SELECT %(event_type)s::text, %(severity)s, 'tick', %(done)s, namespace_id, id, operation, checkpoint,
           attempts, CASE state WHEN 'PENDING' THEN due_at END, %(code)s, %(params)s, %(reclaimed)s
    FROM settled
    WHERE %(event_type)s::text IS NOT NULL
)
SELECT * FROM settled
