"""Reading archives back: rows out of verified batches, into tables, files or answers."""
