-- One digest for each table over the rows that the archives hold: every column as Postgres writes it.
WITH archived_order AS (
    SELECT * FROM "order" WHERE placed_at < %(orders)s::timestamptz
), archived_ticket AS (
    SELECT * FROM ticket WHERE opened_at < %(tickets)s::timestamp
), rows (place, name, row) AS (
    SELECT 1, 'order', archived::text FROM archived_order AS archived
    UNION ALL
    SELECT 2, 'order_line', line::text FROM order_line AS line JOIN archived_order ON archived_order.id = line.order_id
    UNION ALL
    SELECT 3, 'payment', payment::text FROM payment JOIN archived_order ON archived_order.id = payment.order_id
    UNION ALL
    SELECT 4, 'ticket', archived::text FROM archived_ticket AS archived
    UNION ALL
    SELECT 5, 'comment', comment::text
    FROM comment JOIN archived_ticket ON archived_ticket.number = comment.subject_id
    WHERE comment.subject_type = 'Ticket'
)
SELECT name AS table, count(*) AS rows,
       encode(sha256(convert_to(string_agg(row, E'\n' ORDER BY row COLLATE "C"), 'UTF8')), 'hex') AS sha256
FROM rows
GROUP BY place, name
ORDER BY place
