-- How much happened lately; counted no further than people care. Refusals in order of time, so that their index
-- is read from its newest end; errors have an index of their own.
SELECT (SELECT count(*) FROM (
            SELECT FROM tallystick.recovery_event
            WHERE occurred_at > statement_timestamp() - make_interval(secs => %(seconds)s) AND severity = 'error'
            LIMIT %(limit)s) AS one) AS errors,
       (SELECT count(*) FROM (
            SELECT FROM tallystick.security_event
            WHERE occurred_at > statement_timestamp() - make_interval(secs => %(seconds)s)
            ORDER BY occurred_at DESC LIMIT %(limit)s) AS one) AS refusals
