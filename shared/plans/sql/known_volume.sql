SELECT FROM tallystick.volume WHERE storage_id = %(storage_id)s
