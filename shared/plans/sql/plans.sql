SELECT plan.*, namespace.name AS namespace, job.id AS active_job_id, job.state AS active_job_state,
       policy.revision AS policy_now
FROM tallystick.plan
JOIN tallystick.namespace ON namespace.id = plan.namespace_id
LEFT JOIN tallystick.job ON job.plan_id = plan.id AND job.state IN ('PENDING', 'RUNNING', 'PAUSED', 'FAILED')
LEFT JOIN tallystick.policy ON policy.namespace_id = plan.namespace_id AND policy.kind = plan.kind
WHERE (%(namespace_id)s::uuid IS NULL OR plan.namespace_id = %(namespace_id)s)
ORDER BY namespace.name, plan.operation, plan.kind
