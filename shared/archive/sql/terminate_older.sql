SELECT count(pg_terminate_backend(pid))
FROM pg_stat_activity
WHERE pid <> pg_backend_pid()
  AND usename = current_user
  AND split_part(application_name, ' ', 1) = 'tallystick'
  AND split_part(application_name, ' ', 2) = %(job)s
  AND CASE WHEN split_part(application_name, ' ', 3) ~ '^[0-9]{1,18}$'
           THEN split_part(application_name, ' ', 3)::bigint < %(generation)s END
