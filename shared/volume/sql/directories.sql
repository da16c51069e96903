-- What the ledger believes of each directory of a volume, in the order of their bytes: the column has collation C.
SELECT ledger.directory, ledger.bytes
FROM tallystick.ledger
WHERE storage_id = %(storage_id)s AND directory > %(after)s
ORDER BY directory
LIMIT %(limit)s
