-- When a tick last came by for an operation, whether or not it found work: a schedule that stopped shows
-- here and nowhere else. Every tick moves its row; half of a page stays free so that it moves in place.
CREATE TABLE tallystick.last_tick (
    operation text PRIMARY KEY,
    ticked_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);
