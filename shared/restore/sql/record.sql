-- Two restores of one batch wait for each other here; the second gets no row back.
INSERT INTO tallystick_restore.batch (job, seq, sha256, target)
VALUES (%(job)s, %(seq)s, %(sha256)s, %(target)s)
ON CONFLICT (job, seq, target) DO NOTHING
RETURNING seq
