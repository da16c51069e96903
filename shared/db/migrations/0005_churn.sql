-- Free space and vacuuming for tables that change all the time. Nothing is rewritten here: pages filled
-- before keep their shape until they are vacuumed or the table is rewritten.

-- Every unit moves its job's row twice, by columns that are indexed (state, owner, due_at), so the new
-- version never takes the place of the old one in the indexes. Room on the page lets it stay on the page,
-- where the space of dead versions is found again without a vacuum. A fifth of a long history is a long time
-- to wait for one, so it comes with a hundredth.
ALTER TABLE tallystick.job SET (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 500,
    autovacuum_analyze_scale_factor = 0.05
);

-- One row per directory, moved by every settle and by no indexed column: with room on its page it moves in
-- place.
ALTER TABLE tallystick.ledger SET (fillfactor = 80);

-- Written once, and removed in batches by pruning: what a prune freed is found again before as much has
-- been added. Between prunes there is nothing dead, and vacuuming what was added marks pages that are
-- visible to all, so that later vacuums pass them over.
ALTER TABLE tallystick.unit SET (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.1
);
ALTER TABLE tallystick.recovery_event SET (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.1
);
ALTER TABLE tallystick.audit_entry SET (
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.1
);

-- As the others, but each row is written a second time, with its answer.
ALTER TABLE tallystick.receipt SET (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.1
);

-- Of volumes, plans, last ticks and counts of pruned rows there are a handful: their page is never full.
