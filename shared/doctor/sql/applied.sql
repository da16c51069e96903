SELECT version, digest FROM tallystick.migration ORDER BY version
