UPDATE tallystick.volume
SET root_inode = %(root_inode)s, marker_inode = %(marker_inode)s,
    last_directory = CASE WHEN %(keep)s THEN last_directory END,
    last_file = CASE WHEN %(keep)s THEN last_file END,
    last_bytes = CASE WHEN %(keep)s THEN last_bytes END,
    last_sha256 = CASE WHEN %(keep)s THEN last_sha256 END,
    revision = revision + 1, updated_at = clock_timestamp()
WHERE storage_id = %(storage_id)s
RETURNING *
