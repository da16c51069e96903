-- As `replica`, a session fires no trigger of a foreign key: rows would come in that break it.
SELECT current_setting('session_replication_role') AS replication_role
