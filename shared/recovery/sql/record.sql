-- An event bears its own id, so bringing it in a second time is doing nothing.
INSERT INTO tallystick.recovery_event
    (id, occurred_at, type, severity, source, done, actor, address, namespace_id, job_id, operation,
     checkpoint, attempt, next_attempt_at, reason_code, reason_params, reclaimed)
SELECT id, occurred_at, type, severity, source, done, actor, address, namespace_id, job_id, operation,
       checkpoint, attempt, next_attempt_at, reason_code, reason_params, coalesce(reclaimed, false)
FROM jsonb_to_recordset(%(events)s) AS event (
    id uuid, occurred_at timestamptz, type text, severity text, source text, done boolean, actor text,
    address text, namespace_id uuid, job_id uuid, operation text, checkpoint jsonb, attempt integer,
    next_attempt_at timestamptz, reason_code text, reason_params jsonb, reclaimed boolean)
ON CONFLICT (id) DO NOTHING
RETURNING id
