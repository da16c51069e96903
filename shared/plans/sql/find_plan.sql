SELECT plan.*, EXISTS (
           SELECT FROM tallystick.job
           WHERE job.plan_id = plan.id AND job.state IN ('PENDING', 'RUNNING', 'PAUSED', 'FAILED')
       ) AS has_open_job
FROM tallystick.plan
WHERE operation = %(operation)s
  AND (operation = 'archive' AND namespace_id = %(namespace_id)s AND kind = %(kind)s
       OR operation = 'prune' AND namespace_id = %(namespace_id)s
       OR operation = 'scan' AND storage_id = %(storage_id)s)
