-- Removing rows of our own history that an archive proves: one plan per namespace.
CREATE UNIQUE INDEX plan_of_prune ON tallystick.plan (namespace_id) WHERE operation = 'prune';

-- The archives whose rows may go, in the order they are taken.
CREATE INDEX job_archived ON tallystick.job (namespace_id, closed_at, id)
    WHERE operation = 'archive' AND state = 'SUCCEEDED';

-- How many roots of a kind have been removed so far, moved by the statement that removes them: rows that
-- came late are counted against what was archived and is still there.
CREATE TABLE tallystick.pruned (
    namespace_id uuid NOT NULL REFERENCES tallystick.namespace,
    kind         text NOT NULL,
    roots        bigint NOT NULL CHECK (roots >= 0),
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace_id, kind)
);
