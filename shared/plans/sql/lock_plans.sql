-- In one order, so that two who want the same plans take turns.
SELECT FROM tallystick.plan
WHERE namespace_id = %(namespace_id)s OR (operation = 'scan' AND storage_id = %(storage_id)s)
ORDER BY id
FOR UPDATE
