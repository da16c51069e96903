-- Open jobs by what they wait for. Each count has a partial index of its own, so that a million closed
-- jobs cost nothing.
SELECT (SELECT count(*) FROM tallystick.job WHERE state IN ('PENDING', 'RUNNING')) AS working,
       (SELECT count(*) FROM tallystick.job WHERE state = 'PAUSED') AS paused,
       (SELECT count(*) FROM tallystick.job WHERE state = 'FAILED') AS failed
