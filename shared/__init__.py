"""Everything the handlers share."""
