-- A claim whose answer was lost: the owner is random and ours, so a row that bears it is our claim.
SELECT job.*, job.takeovers > 0 AS reclaimed, namespace.enabled AS namespace_enabled,
       policy.revision AS policy_now, policy.enabled AS policy_enabled
FROM tallystick.job
JOIN tallystick.namespace ON namespace.id = job.namespace_id
LEFT JOIN tallystick.policy ON policy.namespace_id = job.namespace_id AND policy.kind = job.kind
WHERE job.owner = %(owner)s
