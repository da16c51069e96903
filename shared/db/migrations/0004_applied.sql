-- What the last `apply` of a kinds file left of a policy or a plan; NULL for what was only ever set by hand.
-- Whatever differs from it now was set since. The audit says by whom, but is not kept for ever.
ALTER TABLE tallystick.policy ADD COLUMN applied jsonb;
ALTER TABLE tallystick.plan ADD COLUMN applied jsonb;
