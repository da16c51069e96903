INSERT INTO tallystick.plan
    (namespace_id, operation, kind, storage_id, enabled, scope, interval_seconds, batch_size, max_bytes,
     policy_revision, reason, next_run_at)
VALUES
    (%(namespace_id)s, %(operation)s, %(kind)s, %(storage_id)s, %(enabled)s, %(scope)s, %(interval_seconds)s,
     %(batch_size)s, %(max_bytes)s, %(policy_revision)s, %(reason)s,
     CASE WHEN %(enabled)s THEN clock_timestamp() END)
RETURNING *
