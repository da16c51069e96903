-- Before a settle, and before bytes are set aside: whoever does either on the same volume waits here, and the
-- statement after this one sees what the one before has written. Two do so at once where the lock of the volume
-- was lost: the difference that each makes counts from what the ledger has, and none is given the room of the
-- other. The row of the volume comes before that of the job, always.
SELECT FROM tallystick.volume
WHERE storage_id = (SELECT storage_id FROM tallystick.job WHERE id = %(job_id)s)
FOR NO KEY UPDATE
