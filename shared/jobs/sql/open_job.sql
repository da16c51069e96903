-- What the first unit finds out (window, shapes of tables) is fixed once, by a holder, before anything
-- is published; a second holder works from what the first one fixed.
UPDATE tallystick.job
SET opening = %(opening)s, updated_at = clock_timestamp()
WHERE id = %(job_id)s AND owner = %(owner)s AND generation = %(generation)s
  AND state = 'RUNNING' AND due_at > clock_timestamp()
  AND batches = %(seq)s AND last_sha256 IS NOT DISTINCT FROM %(tail)s
  AND opening IS NULL
RETURNING job.*
