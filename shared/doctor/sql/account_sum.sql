-- What a volume is believed to hold, twice: as its sum is kept, and as its directories add up.
SELECT used_bytes,
       coalesce((SELECT sum(bytes) FROM tallystick.ledger WHERE ledger.storage_id = volume.storage_id), 0)::bigint
           AS directories_bytes
FROM tallystick.volume
WHERE storage_id = %(storage_id)s
