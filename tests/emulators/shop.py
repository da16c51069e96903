"""The database that is there already: a shop with old orders, and users whose passwords are secrets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psycopg

from shared.db import embedded
from tests.crash.judge import Kind, Related
from tests.worlds import SHOP_TABLES

ORDERS = 3000
# Who keeps the jobs, and who may read the shop and nothing else.
JOBS, READER = "jobs", "reader"
# Everyone but the owner needs a password, and nobody has it by chance.
ACCESS = """\
local all postgres trust
local all all scram-sha-256
"""

# Digits that do not repeat, two kilobytes an order once they are packed: so that a batch takes its time.
SHOP = f"""
{SHOP_TABLES}INSERT INTO app.orders (customer, placed_at)
SELECT (SELECT string_agg(md5(n || '-' || part), '') FROM generate_series(1, 128) AS part),
    timestamptz '2020-01-01 00:00:00+00' + n * interval '1 hour'
FROM generate_series(1, {ORDERS}) AS n;
INSERT INTO app.orders (customer, placed_at)
SELECT 'of today ' || n, now() FROM generate_series(1, 100) AS n;
INSERT INTO app.line SELECT id, number, number FROM app.orders, generate_series(1, 2) AS number;
CREATE ROLE {JOBS} LOGIN;
GRANT CREATE ON DATABASE postgres TO {JOBS};
CREATE ROLE {READER} LOGIN;
GRANT USAGE ON SCHEMA app TO {READER};
GRANT SELECT ON ALL TABLES IN SCHEMA app TO {READER};
"""

# The same rows under three names: one whose tick is killed, one with too small a budget, and one that is
# drained by ticks that ask for each other. Only the first has a plan from the start.
KILLED, TIGHT, DRAINED = KINDS = ("orders", "tight", "drained")
KIND = """
[kinds.{name}]
root = "app.orders"
time = "placed_at"
related = ["app.line"]
after = "365d"
every = "24h"
batch = {batch}
enabled = {enabled}
"""
# A takeover halves a batch, and half of this one is still all there is.
BATCHES = {KILLED: 2 * ORDERS, TIGHT: ORDERS, DRAINED: ORDERS // 3}
KINDS_FILE = "".join(
    KIND.format(name=name, batch=batch, enabled="true" if name == KILLED else "false")
    for name, batch in BATCHES.items()
)

# The same in the words of the judge.
JUDGED = Kind(
    names=KINDS,
    table="app.orders",
    columns="id, customer, placed_at",
    key="id",
    old="placed_at < now() - interval '365 days'",
    order="placed_at, id",
    related=(Related("app.line", "order_id, number, price", "order_id"),),
)


@dataclass(frozen=True)
class Shop:
    """A running server with the shop in it: the URL of its owner, and one without a user."""

    owner: str
    url: str

    def password(self, user: str, password: str) -> None:
        """Give a user another password."""
        with psycopg.connect(self.owner) as connection:
            statement = psycopg.sql.SQL("ALTER ROLE {} PASSWORD {}")
            connection.execute(
                statement.format(psycopg.sql.Identifier(user), psycopg.sql.Literal(password))
            )


def opened(home: Path) -> Shop:
    """Start a server below ``home`` and make the shop in it."""
    owner = embedded.start(home, durable=False)
    with psycopg.connect(owner) as connection:
        connection.execute(SHOP.encode())
        (embedded.Embedded(home).data / "pg_hba.conf").write_text(ACCESS)
        connection.execute("SELECT pg_reload_conf()")
    return Shop(owner, owner.replace("//postgres@", "//"))
