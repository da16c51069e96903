-- Newest first. `before` names the last job already seen.
SELECT job.*
FROM tallystick.job
WHERE (%(namespace_id)s::uuid IS NULL OR namespace_id = %(namespace_id)s)
  AND (%(before)s::uuid IS NULL OR (created_at, id) < (
      SELECT seen.created_at, seen.id FROM tallystick.job AS seen WHERE seen.id = %(before)s))
ORDER BY created_at DESC, id DESC
LIMIT %(limit)s
