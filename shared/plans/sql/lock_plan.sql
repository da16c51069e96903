SELECT FROM tallystick.plan
WHERE operation = %(operation)s
  AND (operation = 'archive' AND namespace_id = %(namespace_id)s AND kind = %(kind)s
       OR operation = 'prune' AND namespace_id = %(namespace_id)s
       OR operation = 'scan' AND storage_id = %(storage_id)s)
FOR UPDATE
