"""The database that is there already: a shop with old orders, and users with passwords."""

from __future__ import annotations

from tests.crash.judge import Kind, Related

ORDERS = 3000
# Digits that do not repeat, about two kilobytes an order once they are packed: a batch takes its time.
SOURCE = f"""
CREATE SCHEMA app;
CREATE TABLE app.orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text NOT NULL,
    placed_at timestamptz NOT NULL
);
CREATE INDEX ON app.orders (placed_at, id);
CREATE TABLE app.line (
    order_id bigint NOT NULL REFERENCES app.orders,
    number integer NOT NULL,
    price numeric(10, 2) NOT NULL,
    PRIMARY KEY (order_id, number)
);
INSERT INTO app.orders (customer, placed_at)
SELECT (SELECT string_agg(md5(n || '-' || part), '') FROM generate_series(1, 128) AS part),
    timestamptz '2020-01-01 00:00:00+00' + n * interval '1 hour'
FROM generate_series(1, {ORDERS}) AS n;
INSERT INTO app.orders (customer, placed_at)
SELECT 'of today ' || n, now() FROM generate_series(1, 100) AS n;
INSERT INTO app.line SELECT id, number, number FROM app.orders, generate_series(1, 2) AS number;
"""

KINDS = """
[kinds.orders]
root = "app.orders"
time = "placed_at"
related = ["app.line"]
after = "365d"
every = "24h"
batch = 1000
"""

# The same in the words of the judge.
JUDGED = Kind(
    names=("orders",),
    table="app.orders",
    columns="id, customer, placed_at",
    key="id",
    old="placed_at < now() - interval '365 days'",
    order="placed_at, id",
    related=(Related("app.line", "order_id, number, price", "order_id"),),
)
