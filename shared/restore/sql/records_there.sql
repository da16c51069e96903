SELECT to_regclass('tallystick_restore.batch') IS NOT NULL AS there
