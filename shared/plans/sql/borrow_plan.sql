-- Lend a plan another scope and slot for the length of a transaction, and give it its own back.
UPDATE tallystick.plan
SET scope = %(scope)s, next_run_at = %(next_run_at)s
WHERE id = %(plan_id)s
