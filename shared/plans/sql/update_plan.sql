-- First enabling is due at once; a plan that was enabled before keeps its slot, unless the new interval
-- is over sooner.
UPDATE tallystick.plan
SET storage_id = %(storage_id)s, enabled = %(enabled)s, scope = %(scope)s,
    interval_seconds = %(interval_seconds)s, batch_size = %(batch_size)s, max_bytes = %(max_bytes)s,
    policy_revision = %(policy_revision)s, reason = %(reason)s, revision = revision + 1,
    next_run_at = CASE WHEN next_run_at IS NULL AND NOT %(enabled)s THEN NULL
                       ELSE least(coalesce(next_run_at, clock_timestamp()),
                                  clock_timestamp() + make_interval(secs => %(interval_seconds)s)) END,
    updated_at = clock_timestamp()
WHERE id = %(plan_id)s
RETURNING *
