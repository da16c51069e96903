SELECT seq, sha256 FROM tallystick_restore.batch WHERE job = %(job)s AND target = %(target)s
