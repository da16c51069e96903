-- How much happened lately; counted no further than people care.
SELECT (SELECT count(*) FROM (
            SELECT FROM tallystick.recovery_event
            WHERE occurred_at > statement_timestamp() - make_interval(secs => %(seconds)s) AND severity = 'error'
            LIMIT %(limit)s) AS one) AS errors,
       (SELECT count(*) FROM (
            SELECT FROM tallystick.security_event
            WHERE occurred_at > statement_timestamp() - make_interval(secs => %(seconds)s)
            LIMIT %(limit)s) AS one) AS refusals
