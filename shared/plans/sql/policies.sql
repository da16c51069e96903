SELECT policy.*, namespace.name AS namespace
FROM tallystick.policy
JOIN tallystick.namespace ON namespace.id = policy.namespace_id
WHERE (%(namespace_id)s::uuid IS NULL OR policy.namespace_id = %(namespace_id)s)
  AND (%(kind)s::text IS NULL OR policy.kind = %(kind)s)
ORDER BY namespace.name, policy.kind
