-- Ages are counted here: instants of two clocks are never compared.
SELECT operation, ticked_at,
       extract(epoch FROM clock_timestamp() - ticked_at)::float8 AS age_seconds
FROM tallystick.last_tick
ORDER BY operation
