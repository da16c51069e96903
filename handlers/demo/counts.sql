-- What is older than a year, and what there is at all: nothing of it may change.
SELECT (SELECT count(*) FROM "order" WHERE placed_at < now() - interval '365 days') AS orders,
       (SELECT count(*) FROM ticket WHERE opened_at < (now() - interval '365 days') AT TIME ZONE 'UTC') AS tickets,
       (SELECT count(*) FROM "order") + (SELECT count(*) FROM order_line) + (SELECT count(*) FROM payment)
           + (SELECT count(*) FROM ticket) + (SELECT count(*) FROM comment) AS all_rows
