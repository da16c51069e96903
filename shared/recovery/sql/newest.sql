-- Newest first, from after `before`; `search` looks in type, code and parameters.
SELECT *
FROM tallystick.recovery_event AS event
WHERE (%(namespace_id)s::uuid IS NULL OR namespace_id = %(namespace_id)s)
  AND (%(job_id)s::uuid IS NULL OR job_id = %(job_id)s)
  AND (%(before)s::uuid IS NULL OR (occurred_at, id) < (
      SELECT seen.occurred_at, seen.id FROM tallystick.recovery_event AS seen WHERE seen.id = %(before)s))
  AND (%(search)s::text IS NULL
       OR position(lower(%(search)s) IN lower(concat_ws(' ', type, severity, operation, reason_code,
                                                        reason_params::text, job_id::text))) > 0)
ORDER BY occurred_at DESC, id DESC
LIMIT %(limit)s
