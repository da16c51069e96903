SELECT * FROM tallystick.job WHERE id = %(job_id)s FOR UPDATE
