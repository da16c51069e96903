-- Making what is not there yet: two who find nothing would both make it.
SELECT pg_advisory_xact_lock(hashtextextended('tallystick_restore', 0))
