-- How much happened lately; counted no further than people care. In order of time, so that an index is read
-- from its newest end, whatever the planner believes of how much is there.
SELECT (SELECT count(*) FROM (
            SELECT FROM tallystick.recovery_event
            WHERE occurred_at > statement_timestamp() - make_interval(secs => %(seconds)s) AND severity = 'error'
            ORDER BY occurred_at DESC LIMIT %(limit)s) AS one) AS errors,
       (SELECT count(*) FROM (
            SELECT FROM tallystick.security_event
            WHERE occurred_at > statement_timestamp() - make_interval(secs => %(seconds)s)
            ORDER BY occurred_at DESC LIMIT %(limit)s) AS one) AS refusals
