CREATE SCHEMA IF NOT EXISTS tallystick_restore
