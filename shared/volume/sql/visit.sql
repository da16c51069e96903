-- The volume as the database knows it, recorded when it is first used and noted at every tick.
INSERT INTO tallystick.volume (storage_id, root_inode, marker_inode)
VALUES (%(storage_id)s, %(root_inode)s, %(marker_inode)s)
ON CONFLICT (storage_id) DO UPDATE SET probed_at = clock_timestamp()
RETURNING *,
    (SELECT coalesce(sum(reserved), 0)::bigint FROM tallystick.job
     WHERE job.storage_id = volume.storage_id AND reserved > 0) AS reserved,
    (SELECT count(*) FROM tallystick.job
     WHERE job.storage_id = volume.storage_id AND state = 'PAUSED'
       AND error_code = 'STORAGE_UNAVAILABLE') AS waiting,
    (SELECT count(*) FROM tallystick.job
     WHERE job.storage_id = volume.storage_id AND state = 'PAUSED'
       AND error_code = 'CREDENTIAL_MISSING') AS uncredentialed
