SELECT volume.*,
    coalesce((SELECT sum(reserved)::bigint FROM tallystick.job
              WHERE job.storage_id = volume.storage_id AND reserved > 0), 0) AS reserved,
    (SELECT count(*) FROM tallystick.job
     WHERE job.storage_id = volume.storage_id AND state = 'PAUSED'
       AND error_code = 'STORAGE_UNAVAILABLE') AS waiting
FROM tallystick.volume
WHERE %(storage_id)s::text IS NULL OR storage_id = %(storage_id)s
ORDER BY created_at, storage_id
