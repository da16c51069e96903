UPDATE tallystick.namespace
SET enabled = %(enabled)s, revision = revision + 1, updated_at = clock_timestamp()
WHERE id = %(namespace_id)s
RETURNING *
