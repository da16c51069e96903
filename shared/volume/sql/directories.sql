-- What the ledger believes of each directory of a volume, with the job it belongs to.
SELECT ledger.directory, ledger.bytes
FROM tallystick.ledger
WHERE storage_id = %(storage_id)s AND directory COLLATE "C" > %(after)s
ORDER BY directory COLLATE "C"
LIMIT %(limit)s
