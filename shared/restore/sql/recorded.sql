SELECT seq, sha256, target FROM tallystick_restore.batch WHERE job = %(job)s AND target = ANY (%(targets)s)
