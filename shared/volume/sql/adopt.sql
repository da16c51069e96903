UPDATE tallystick.volume
SET root_inode = %(root_inode)s, marker_inode = %(marker_inode)s,
    revision = revision + 1, updated_at = clock_timestamp()
WHERE storage_id = %(storage_id)s
RETURNING *
