-- Which batches are in which tables: written in the transaction that brings their rows, so that a restore that
-- died is simply run again.
CREATE TABLE IF NOT EXISTS tallystick_restore.batch (
    job uuid NOT NULL,
    seq integer NOT NULL,
    sha256 text NOT NULL,
    target text NOT NULL,
    restored_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (job, seq, target)
)
