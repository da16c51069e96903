SELECT * FROM tallystick.namespace
WHERE %(name)s::text IS NULL OR name = %(name)s
ORDER BY name
