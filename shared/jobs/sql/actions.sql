-- What operators did to a job, newest first.
SELECT occurred_at, actor, action, reason, revision_seen
FROM tallystick.audit_entry
WHERE subject = 'job' AND subject_id = %(job_id)s::text
ORDER BY occurred_at DESC
LIMIT %(limit)s
