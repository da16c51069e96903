UPDATE tallystick.plan SET applied = %(applied)s
WHERE id = %(plan_id)s
RETURNING *
