-- The volume as the database knows it, recorded when it is first used. That it was seen is noted only when
-- the last note is old: a transaction that writes nothing need not wait for the disk at its commit.
WITH noted AS (
    UPDATE tallystick.volume
    SET probed_at = clock_timestamp()
    WHERE storage_id = %(storage_id)s
      AND probed_at < clock_timestamp() - make_interval(secs => %(noted_seconds)s)
    RETURNING *
), first_used AS (
    INSERT INTO tallystick.volume (storage_id, root_inode, marker_inode)
    SELECT %(storage_id)s, %(root_inode)s, %(marker_inode)s
    WHERE NOT EXISTS (SELECT FROM tallystick.volume WHERE storage_id = %(storage_id)s)
    ON CONFLICT DO NOTHING
    RETURNING *
), known AS (
    SELECT * FROM noted
    UNION ALL
    SELECT * FROM first_used
    UNION ALL
    SELECT * FROM tallystick.volume
    WHERE storage_id = %(storage_id)s
      AND NOT EXISTS (SELECT FROM noted) AND NOT EXISTS (SELECT FROM first_used)
)
SELECT known.*,
    (SELECT coalesce(sum(reserved), 0)::bigint FROM tallystick.job
     WHERE job.storage_id = known.storage_id AND reserved > 0) AS reserved,
    (SELECT count(*) FROM tallystick.job
     WHERE job.storage_id = known.storage_id AND state = 'PAUSED'
       AND error_code = 'STORAGE_UNAVAILABLE') AS waiting,
    (SELECT count(*) FROM tallystick.job
     WHERE job.storage_id = known.storage_id AND state = 'PAUSED'
       AND error_code = 'CREDENTIAL_MISSING') AS uncredentialed
FROM known
