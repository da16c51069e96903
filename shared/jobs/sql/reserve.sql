-- The last look at the claim before a file gets its name: the fence again, both budgets, and a note of
-- the bytes that may be on the volume from now on without being recorded.
WITH held AS MATERIALIZED (
    SELECT id, storage_id, bytes, max_bytes
    FROM tallystick.job
    WHERE id = %(job_id)s AND owner = %(owner)s AND generation = %(generation)s
      AND state = 'RUNNING' AND due_at > clock_timestamp()
      AND batches = %(seq)s AND last_sha256 IS NOT DISTINCT FROM %(tail)s
    FOR UPDATE
), volume AS (
    SELECT volume.used_bytes + coalesce((
               SELECT sum(other.reserved) FROM tallystick.job AS other
               WHERE other.storage_id = held.storage_id AND other.reserved > 0 AND other.id <> held.id
           ), 0) AS used
    FROM held JOIN tallystick.volume USING (storage_id)
), reserved AS (
    UPDATE tallystick.job
    SET reserved = %(size)s, updated_at = clock_timestamp()
    FROM held, volume
    WHERE job.id = held.id
      AND held.bytes + %(size)s <= held.max_bytes
      AND volume.used + %(size)s <= %(volume_max)s
    RETURNING job.id
)
SELECT held.bytes AS job_bytes, held.max_bytes AS job_max, volume.used::bigint AS volume_used,
       EXISTS (SELECT FROM reserved) AS reserved
FROM held, volume
