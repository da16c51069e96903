-- THE COMMIT POINT of a unit. The fenced update comes first and everything else selects from it, in
-- one statement: there is no place between two statements where a frozen process could hold locks.
WITH settled AS (
    UPDATE tallystick.job
    SET state       = CASE WHEN %(final)s THEN 'SUCCEEDED' ELSE 'PENDING' END,
        closed_at   = CASE WHEN %(final)s THEN clock_timestamp() END,
        owner       = NULL,
        lease_until = NULL,
        due_at      = clock_timestamp(),
        takeovers   = 0,
        failures    = 0,
        error_code  = NULL,
        error_params = NULL,
        page_size   = %(page_size)s,
        checkpoint  = %(checkpoint)s,
        batches     = %(unit_seq)s,
        roots       = roots + %(unit_roots)s,
        bytes       = bytes + %(unit_bytes)s,
        reserved    = 0,
        last_sha256 = %(new_tail)s,
        updated_at  = clock_timestamp()
    WHERE id = %(job_id)s AND owner = %(owner)s AND generation = %(generation)s
      AND state = 'RUNNING' AND due_at > clock_timestamp()
      AND batches = %(seq)s AND last_sha256 IS NOT DISTINCT FROM %(tail)s
    RETURNING job.*
), unit AS (
    INSERT INTO tallystick.unit (job_id, seq, generation, owner, sha256, bytes, roots, evidence)
    SELECT id, %(unit_seq)s, generation, %(owner)s, %(unit_sha256)s, %(unit_bytes)s, %(unit_roots)s, %(evidence)s
    FROM settled
), measured AS (
    SELECT settled.storage_id, entry.directory, entry.bytes,
           entry.bytes - coalesce(known.bytes, 0) AS difference
    FROM settled
    CROSS JOIN jsonb_to_recordset(%(ledger)s) AS entry (directory text, bytes bigint)
    LEFT JOIN tallystick.ledger AS known
           ON known.storage_id = settled.storage_id AND known.directory = entry.directory
), written AS (
    INSERT INTO tallystick.ledger (storage_id, directory, bytes)
    SELECT storage_id, directory, bytes FROM measured
    ON CONFLICT (storage_id, directory)
    DO UPDATE SET bytes = excluded.bytes, updated_at = clock_timestamp()
), used AS (
    -- With the sum goes the file that a volume must have from now on to be this volume.
    UPDATE tallystick.volume
    SET used_bytes     = used_bytes + moved.difference,
        last_directory = coalesce(%(published_directory)s::text, last_directory),
        last_file      = coalesce(%(published_file)s::text, last_file),
        last_bytes     = CASE WHEN %(published_file)s::text IS NULL THEN last_bytes ELSE %(unit_bytes)s END,
        last_sha256    = CASE WHEN %(published_file)s::text IS NULL THEN last_sha256 ELSE %(unit_sha256)s END,
        updated_at     = clock_timestamp()
    FROM (SELECT storage_id, sum(difference) AS difference FROM measured GROUP BY storage_id) AS moved
    WHERE volume.storage_id = moved.storage_id
), released AS (
    UPDATE tallystick.job
    SET reserved = 0
    FROM settled
    WHERE job.id = ANY (%(released)s::uuid[]) AND job.state = 'ABANDONED' AND job.reserved > 0
), event AS (
    INSERT INTO tallystick.recovery_event
        (type, severity, source, done, namespace_id, job_id, operation, checkpoint, attempt,
         reason_code, reason_params, reclaimed)
    SELECT event.type, event.severity, 'tick', event.done, settled.namespace_id, settled.id,
           settled.operation, settled.checkpoint, settled.attempts,
           event.reason_code, event.reason_params, %(reclaimed)s
    FROM settled
    CROSS JOIN jsonb_to_recordset(%(events)s)
        AS event (type text, severity text, done boolean, reason_code text, reason_params jsonb)
)
SELECT * FROM settled
