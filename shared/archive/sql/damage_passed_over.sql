-- Settings under which the server gives what is left of a damaged page instead of an error.
SELECT ARRAY(SELECT name
             FROM unnest(ARRAY['zero_damaged_pages', 'ignore_checksum_failure']) AS name
             WHERE current_setting(name) = 'on') AS settings
