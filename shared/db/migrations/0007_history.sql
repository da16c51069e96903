-- What people ask about jobs and events must not cost more as history grows. Every claim and every settle writes a
-- new entry into each index that holds the row of a job, so the indexes of closed jobs hold closed jobs only: a
-- job enters them once, when it closes.

-- Of each kind the newest archive with a confirmed tail.
CREATE INDEX job_tail ON tallystick.job (namespace_id, kind, created_at DESC, id DESC)
    WHERE closed_at IS NOT NULL AND operation = 'archive' AND last_sha256 IS NOT NULL;

-- The newest archives of a volume.
CREATE INDEX job_of_volume ON tallystick.job (storage_id, created_at DESC, id DESC)
    WHERE closed_at IS NOT NULL AND operation = 'archive';

-- What waits for an operator is found by the same index as what is set aside, whether a plan made it or not.
DROP INDEX tallystick.job_unfinished;
CREATE INDEX job_unfinished ON tallystick.job (storage_id)
    WHERE reserved > 0 OR state IN ('PAUSED', 'FAILED');

-- Pruning reads archives of our own tables only, and passes over none of the others.
DROP INDEX tallystick.job_archived;
CREATE INDEX job_archived ON tallystick.job (namespace_id, closed_at, id)
    WHERE operation = 'archive' AND state = 'SUCCEEDED' AND input -> 'definition' ->> 'source' = 'control';

-- Events are few beside units. Errors are fewer, and a monitor counts those of a day again and again.
CREATE INDEX recovery_event_of_namespace ON tallystick.recovery_event (namespace_id, occurred_at DESC, id DESC);
CREATE INDEX recovery_event_errors ON tallystick.recovery_event (occurred_at) WHERE severity = 'error';

-- A scan goes through directories in the order of their bytes; the key serves that order only if it has it.
ALTER TABLE tallystick.ledger ALTER COLUMN directory TYPE text COLLATE "C";
