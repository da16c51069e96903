"""Evidence of what went wrong and how it was recovered: in the database, or beside the data until then."""
