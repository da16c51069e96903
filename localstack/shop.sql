-- A shop with old orders, for a try. A second time it changes nothing.
CREATE TABLE IF NOT EXISTS orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text NOT NULL,
    placed_at timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS orders_placed_at ON orders (placed_at, id);
CREATE TABLE IF NOT EXISTS order_line (
    order_id bigint NOT NULL REFERENCES orders,
    number integer NOT NULL,
    price numeric(10, 2) NOT NULL,
    PRIMARY KEY (order_id, number)
);
-- An order every three hours: most of them older than a year, and some of today.
INSERT INTO orders (customer, placed_at)
SELECT 'customer ' || n % 97, now() - n * interval '3 hours'
FROM generate_series(0, 5999) AS n
WHERE NOT EXISTS (SELECT FROM orders);
INSERT INTO order_line (order_id, number, price)
SELECT id, number, (id * 7 + number) % 10000 / 100.0
FROM orders, generate_series(1, 3) AS number
ON CONFLICT DO NOTHING;
