"""All contact with the mounted directory: identity, lock, write-once publishing, and its ledger."""
