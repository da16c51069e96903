-- The demo's application: a shop with five years of orders and support tickets, made up by arithmetic so
-- that every run has the same rows. Its types are those that tools like to get wrong.

CREATE TYPE order_status AS ENUM ('placed', 'paid', 'shipped', 'returned', 'cancelled');

CREATE TABLE customer (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name   text NOT NULL,
    tags   text[] NOT NULL,
    joined date NOT NULL
);

CREATE TABLE "order" (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES customer,
    placed_at   timestamptz NOT NULL,
    status      order_status NOT NULL,
    total       numeric(12, 2) NOT NULL,
    note        text,
    details     jsonb NOT NULL,
    total_cents bigint GENERATED ALWAYS AS ((total * 100)::bigint) STORED
);

CREATE TABLE order_line (
    order_id bigint NOT NULL REFERENCES "order",
    line     integer NOT NULL,
    article  text NOT NULL,
    quantity integer NOT NULL,
    price    numeric NOT NULL,
    weight   double precision NOT NULL,
    PRIMARY KEY (order_id, line)
);

CREATE TABLE payment (
    id        uuid PRIMARY KEY,
    order_id  bigint NOT NULL REFERENCES "order",
    paid_at   timestamptz NOT NULL,
    amount    numeric(12, 2) NOT NULL,
    signature bytea NOT NULL,
    terms     interval NOT NULL
);

CREATE TABLE ticket (
    number    text PRIMARY KEY,
    opened_at timestamp NOT NULL,
    subject   text NOT NULL,
    "window"  tstzrange
);

-- Comments belong to tickets and to other things, told apart by a column: no foreign key says so.
CREATE TABLE comment (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subject_type text NOT NULL,
    subject_id   text NOT NULL,
    body         text NOT NULL
);

INSERT INTO customer (name, tags, joined)
SELECT (ARRAY['Ada', 'Björn', 'Chloé', 'Dōgen', 'Eğe', '李', 'O''Neil', 'Zoë'])[1 + n % 8] || ' ' || n,
       CASE n % 4 WHEN 0 THEN '{}' WHEN 1 THEN ARRAY['new'] ELSE ARRAY['gold', 'has "quotes", commas'] END,
       date '2019-01-01' + n
FROM generate_series(1, 800) AS n;

INSERT INTO "order" (customer_id, placed_at, status, total, note, details)
SELECT 1 + n % 800,
       -- Several orders share each instant, as they do in life; the key tells them apart.
       date_trunc('hour', now()) - interval '5 years' + (n / 3) * (interval '5 years' / 8000),
       (ARRAY['placed', 'paid', 'shipped', 'returned', 'cancelled']::order_status[])[1 + n % 5],
       round((10 + (n * 7919) % 100000)::numeric / 100, 2),
       CASE n % 7 WHEN 0 THEN NULL
                  WHEN 1 THEN E'tab\there, newline\nthere, \\. alone'
                  WHEN 2 THEN ''
                  WHEN 3 THEN 'Grüße aus Köln 🍺'
                  ELSE 'leave at the door' END,
       jsonb_build_object('channel', (ARRAY['web', 'shop', 'phone'])[1 + n % 3], 'gift', n % 11 = 0, 'score', n / 3.0)
FROM generate_series(1, 24000) AS n;

INSERT INTO order_line (order_id, line, article, quantity, price, weight)
SELECT n, line, 'A-' || (n * line) % 977, 1 + (n + line) % 4, (100 + (n * line) % 9900)::numeric / 100,
       CASE (n + line) % 50 WHEN 0 THEN 'NaN' WHEN 1 THEN '-0' ELSE (n % 1000) / 3.0 END
FROM generate_series(1, 24000) AS n, generate_series(1, 1 + n % 4) AS line;

INSERT INTO payment (id, order_id, paid_at, amount, signature, terms)
SELECT md5(o.id::text)::uuid, o.id, o.placed_at + interval '3 minutes', o.total, sha256(o.id::text::bytea),
       CASE o.id % 3 WHEN 0 THEN interval '1 month' ELSE interval '30 days' END
FROM "order" AS o
WHERE o.status <> 'cancelled';

INSERT INTO ticket (number, opened_at, subject, "window")
SELECT 'T-' || lpad(n::text, 5, '0'), (now() AT TIME ZONE 'UTC') - interval '4 years' + n * interval '6 hours',
       'Where is my parcel? (' || n || ')',
       CASE n % 3 WHEN 0 THEN NULL ELSE tstzrange(timestamptz '2024-01-01' + n * interval '1 hour', NULL) END
FROM generate_series(1, 4000) AS n;

INSERT INTO comment (subject_type, subject_id, body)
SELECT CASE n % 5 WHEN 0 THEN 'Article' ELSE 'Ticket' END, 'T-' || lpad((1 + n % 4000)::text, 5, '0'),
       'Comment ' || n || repeat(' …and on', n % 6)
FROM generate_series(1, 16000) AS n;

CREATE INDEX ON "order" (placed_at, id);
CREATE INDEX ON payment (order_id);
CREATE INDEX ON ticket (opened_at, number);
CREATE INDEX ON comment (subject_id);

ANALYZE;
