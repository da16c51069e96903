-- The next two batch files with rows of our own history after a place, in the order their jobs closed: one
-- to do, the other to know that there is more. The definition a job stored decides, never today's kinds. A
-- batch whose recorded unit has no roots is passed over.
--
-- All work on a volume is done under its lock, so no archive closes while this looks. What may still come
-- is the settle of a holder that died after sending it: it commits at a time before now, and after its
-- claim. So nothing that closed after the claim of a job that still runs is taken yet.
SELECT proof.id AS job_id, file.seq, unit.sha256,
       to_char(proof.closed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') AS closed_at
FROM tallystick.job AS proof
CROSS JOIN LATERAL generate_series(1, proof.batches) AS file (seq)
LEFT JOIN tallystick.unit ON unit.job_id = proof.id AND unit.seq = file.seq
WHERE proof.operation = 'archive'
  AND proof.state = 'SUCCEEDED'
  AND proof.namespace_id = %(namespace_id)s
  AND proof.storage_id = %(storage_id)s
  AND proof.input -> 'definition' ->> 'source' = 'control'
  AND proof.input -> 'definition' ->> 'root' = ANY (%(roots)s)
  AND (proof.closed_at, proof.id) >= (%(closed_at)s::timestamptz, %(job)s::uuid)
  AND (proof.closed_at, proof.id, file.seq) > (%(closed_at)s::timestamptz, %(job)s::uuid, %(seq)s::integer)
  AND unit.roots IS DISTINCT FROM 0
  AND NOT EXISTS (
      SELECT FROM tallystick.job AS running
      WHERE running.state = 'RUNNING'
        AND running.operation = 'archive'
        AND running.namespace_id = proof.namespace_id
        AND running.storage_id = proof.storage_id
        AND running.updated_at <= proof.closed_at)
ORDER BY proof.closed_at, proof.id, file.seq
LIMIT 2
