UPDATE tallystick.policy SET applied = %(applied)s
WHERE namespace_id = %(namespace_id)s AND kind = %(kind)s
RETURNING *
