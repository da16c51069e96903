-- Changes to policies and plans of one namespace happen one after the other. No key changes, so jobs
-- can be made meanwhile: their reference to the namespace would wait for a stronger lock, and deadlock
-- with an operator who waits for the plan or the policy that scheduling holds.
SELECT * FROM tallystick.namespace WHERE name = %(name)s FOR NO KEY UPDATE
