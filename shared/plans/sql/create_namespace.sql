INSERT INTO tallystick.namespace (name) VALUES (%(name)s)
ON CONFLICT (name) DO NOTHING
RETURNING *
