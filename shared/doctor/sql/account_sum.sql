-- What a volume is believed to hold, twice: as its sum is kept, and as its directories add up. Every archive job has
-- a directory for ever, so they are added up only while they are not too many; null where they are. The order is
-- that of the key: without it those of other volumes could be read, too.
SELECT used_bytes,
       (SELECT CASE WHEN count(*) <= %(directories_max)s THEN coalesce(sum(bytes), 0)::bigint END
        FROM (SELECT bytes FROM tallystick.ledger
              WHERE ledger.storage_id = volume.storage_id
              ORDER BY directory
              LIMIT %(directories_max)s + 1) AS added) AS directories_bytes
FROM tallystick.volume
WHERE storage_id = %(storage_id)s
