INSERT INTO tallystick.policy (namespace_id, kind, after_days, enabled)
VALUES (%(namespace_id)s, %(kind)s, %(after_days)s, %(enabled)s)
ON CONFLICT (namespace_id, kind)
DO UPDATE SET after_days = excluded.after_days, enabled = excluded.enabled,
              revision = policy.revision + 1, updated_at = clock_timestamp()
RETURNING *
