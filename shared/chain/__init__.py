"""The archive format as pure functions: bytes in, verdicts out; no files, no database, no clock."""
