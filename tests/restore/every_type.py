"""A table with a column of every built-in type, and values at the edges of each.

The values are what Postgres reads; what it prints of them is compared elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

import psycopg
from hypothesis import strategies as st
from psycopg import sql

from tests.worlds import rows

Drawn = st.SearchStrategy[str]

SCHEMA = "every"
KINDS = """
[kinds.{}]
root = "every.type"
time = "at"
"""
# Types that no archive can make: they must be in the target already.
DECLARED = (
    "CREATE SCHEMA every",
    "CREATE TYPE every.mood AS ENUM ('glad', '', 'so, so', 'it''s \"odd\"', E'tab\\t\\\\.', 'ärgerlich')",
    "CREATE TYPE every.pair AS (a integer, b text, c numeric)",
    "CREATE DOMAIN every.short AS varchar(3)",
    "CREATE TYPE every.span AS RANGE (subtype = float8)",
)
EXTENSIONS = {
    "hstore": ("hstore", ['""=>NULL', '"a b"=>"x,\\"y", c=>NULL', ""]),
    "citext": ("citext", ["A", "a", "", "\\N", "ß"]),
    "ltree": ("ltree", ["Top.Science.Astronomy", ""]),
}


@dataclass(frozen=True)
class Values:
    """Texts of a type: those at its edges, and more to draw from."""

    edges: tuple[str, ...]
    drawn: Drawn


def some(*edges: str) -> Values:
    return Values(edges, st.sampled_from(edges))


def edged(drawn: Drawn, *edges: str) -> Values:
    return Values(edges, drawn | st.sampled_from(edges))


def whole(bits: int) -> Values:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return edged(st.integers(low, high).map(str), str(low), str(high))


# Text with everything that has a meaning in COPY, in psql and in arrays, and letters of every plane.
ODD_TEXTS = (
    *(
        "",
        " ",
        "\\N",
        "\\.",
        "\\",
        "\\\\",
        "\t",
        "\n",
        "\r",
        "\r\n",
        "\\.\n",
        "\n\\.\n",
        "a\\.\n\\.",
    ),
    *(
        "NULL",
        "null",
        '"',
        "'",
        "{}",
        "{,}",
        "--",
        "\x01\x02\x7f\x80\x9f",
        "\v\f\b",
        "\ufeff",
        "\ufffe",
    ),
    *("\U0001f40d\U0010ffff\U000e0001", "é", "\u2028", "-- end {}", "COPY x FROM stdin;"),
)
TEXTS = edged(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), *ODD_TEXTS
)
LETTERS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=3)
SHORT = edged(LETTERS, "", "\\N", "\\.", "\n\t\r", "   ", "\U0001f40d\U0010ffff\U000e0001")


def floats(width: Literal[32, 64]) -> Values:
    least = "1e-45" if width == 32 else "5e-324"
    drawn = st.floats(width=width).map(lambda value: repr(float(value)))
    return edged(
        drawn.filter(lambda text: text != ""),
        *("-0", "0", "NaN", "Infinity", "-Infinity", least, "0.1", "1e15", "123456789"),
    )


def _numeric(parts: tuple[int, int, bool]) -> str:
    digits, scale, negative = parts
    text = str(digits).rjust(scale + 1, "0")
    text = f"{text[: len(text) - scale]}.{text[len(text) - scale :]}" if scale else text
    return f"-{text}" if negative else text


NUMERICS = edged(
    st.tuples(st.integers(0, 10**40), st.integers(0, 30), st.booleans()).map(_numeric),
    *("NaN", "Infinity", "-Infinity", "0", "0.00", "1.10", "-0.000"),
    *("9" * 1000, "1e1000", "0." + "0" * 999 + "1", "1" * 500 + "." + "2" * 500),
)


def _quoted(text: str | None) -> str:
    if text is None:
        return "NULL"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


TEXT_ARRAYS = edged(
    st.lists(TEXTS.drawn | st.none(), max_size=4).map(
        lambda items: "{" + ",".join(map(_quoted, items)) + "}"
    ),
    "{}",
    '[0:2]={a,NULL,"NULL"}',
    '[-1:0][5:6]={{a,"{}"},{"\\\\",""}}',
    "{{{1}}}",
)
DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | LETTERS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(LETTERS, inner, max_size=3),
    max_leaves=8,
).map(lambda value: json.dumps(value, ensure_ascii=False))
JSON = edged(
    DOCUMENTS,
    *(
        '{"a":1,\n\t"a": 1.0e2}',
        '"\\u0000"',
        "null",
        " 1 ",
        '{"a" : 1 , "a" : 2}',
        "1e400",
        '"\\ud83d"',
    ),
)
JSONB = edged(DOCUMENTS, "null", '{"b":1,"a":1.0e2}', "1.10", '"\\\\."', "[]", "1e400")
MOMENTS = (
    *("infinity", "-infinity", "4713-01-01 00:00:00 BC", "294276-12-31 23:59:59.999999"),
    *(
        "0001-12-31 23:59:59 BC",
        "1582-10-10 12:00:00",
        "1883-11-18 12:03:58",
        "2000-01-01 00:00:00.000001",
    ),
)
INSTANTS = edged(st.datetimes().map(lambda value: value.isoformat(" ")), *MOMENTS)
TIMES = edged(
    st.times().map(lambda value: value.isoformat()), "24:00:00", "00:00:00", "23:59:59.999999"
)
INTERVALS = edged(
    st.tuples(
        st.integers(-2_000_000, 2_000_000),
        st.integers(-(2**31) + 1, 2**31 - 1),
        st.integers(-(2**53), 2**53),
    ).map(lambda parts: "{} months {} days {} microseconds".format(*parts)),
    *(
        "1 mon",
        "30 days",
        "-1 days +02:00:00",
        "1 year 2 mons 3 days 04:05:06.789",
        "0",
        "-0.000001 s",
    ),
    *("-178000000 years", "1 mon -1 days"),
)
BITS = edged(st.text("01", max_size=40), "", "0", "1" * 40)

COLUMNS: dict[str, Values] = {
    "smallint": whole(16),
    "integer": whole(32),
    "bigint": whole(64),
    "numeric": NUMERICS,
    "numeric(10,2)": edged(st.integers(-(10**10) + 1, 10**10 - 1).map(lambda n: f"{n}e-2"), "NaN"),
    "numeric(5,-2)": edged(st.integers(-99999, 99999).map(lambda n: f"{n}00"), "49", "-9999900"),
    "real": floats(32),
    "double precision": floats(64),
    "money": edged(
        st.integers(-(2**49), 2**49).map(lambda n: f"{n}.37"), "-0.01", "92233720368547758.07"
    ),
    "boolean": some("t", "f"),
    "text": TEXTS,
    "varchar(3)": SHORT,
    "character(5)": edged(st.text("ab\t\\ é", max_size=5), "", "\\.", "     ", "\n"),
    'text COLLATE "C"': TEXTS,
    "name": SHORT,
    '"char"': some("", "a", "\\", "\\377", "\\001", " "),
    "bytea": edged(
        st.binary().map(lambda data: f"\\x{data.hex()}"), "\\x" + bytes(range(256)).hex()
    ),
    "json": JSON,
    "jsonb": JSONB,
    "jsonpath": some("$", '$.a[*] ? (@ > "x\\\\y")', 'strict $."odd key"'),
    "xml": some("", "<a/>", "text &amp; more", "<a>\r\n\t</a><b/>", "<!-- \\. -->"),
    "date": edged(st.dates().map(str), "infinity", "-infinity", "4713-01-01 BC", "5874897-12-31"),
    "time": TIMES,
    "time(3) with time zone": edged(
        st.times().map(lambda value: f"{value.isoformat()}-04:56:02"),
        *("24:00:00+00", "23:59:59.9994+15:59:59", "00:00:00-15:59:59"),
    ),
    "timestamp": INSTANTS,
    "timestamptz": INSTANTS,
    "timestamp(0)": edged(st.datetimes().map(str), *MOMENTS[:3]),
    "interval": INTERVALS,
    "interval day to second(3)": some("1 day 02:03:04.567", "-1 day"),
    "uuid": edged(st.uuids().map(str), "0" * 32, "f" * 32),
    "bit(5)": edged(st.text("01", min_size=5, max_size=5), "00000", "11111"),
    "bit varying": BITS,
    "bit varying(40)": BITS,
    "inet": some("10.1.2.3", "10.1.2.3/8", "::1", "2001:db8::/33", "0.0.0.0/0"),
    "cidr": some("10.0.0.0/8", "::/0", "2001:db8::/32"),
    "macaddr": some("08:00:2b:01:02:03"),
    "macaddr8": some("08:00:2b:01:02:03:04:05"),
    "tsvector": some("", "'a b':1A,2 'c':3", "'it''s':1 '\\\\.':2", "'é':16383"),
    "tsquery": some("", "'a' & !'b' <-> 'c':*A"),
    "point": some("(1.5,-0)", "(NaN,Infinity)", "(0.1,1e-300)"),
    "line": some("{1,-1,0}", "{0,-1,0.1}"),
    "lseg": some("[(0,0),(1,1)]"),
    "box": some("(1,1),(0,0)"),
    "path": some("((0,0),(1,1))", "[(0,0),(1,1)]"),
    "polygon": some("((0,0),(1,1),(1,0))"),
    "circle": some("<(0,0),0.1>"),
    "oid": some("0", "4294967295"),
    "xid8": some("18446744073709551615"),
    "pg_lsn": some("FFFFFFFF/FFFFFFFF", "0/0"),
    "pg_snapshot": some("10:20:10,14,15"),
    "int4range": some("empty", "[1,5]", "(,)", "[5,)", "(,-5]"),
    "int8range": some("[-9223372036854775808,9223372036854775807)", "empty"),
    "numrange": some("[1.10,2.200)", "(,NaN]", "[-Infinity,Infinity]", "empty"),
    "daterange": some("[2020-01-01,infinity]", "(,)", "[4713-01-01 BC,]"),
    "tsrange": some("[-infinity,infinity]", '["2020-01-01 00:00:00.000001",)'),
    "tstzrange": some("[2020-01-01 00:00:00+00,infinity)", "empty"),
    "int4multirange": some("{}", "{[1,2),[5,9)}", "{(,)}", "{empty}"),
    "nummultirange": some("{[1.10,2.0),(3,]}"),
    "tstzmultirange": some("{[2020-01-01 00:00:00+00,infinity]}"),
    "integer[]": some("{}", "{1,NULL,-3}", "[0:1]={7,8}", "{{1,2},{3,4}}"),
    "text[]": TEXT_ARRAYS,
    "bytea[]": some('{"\\\\x00ff",NULL,"\\\\x"}'),
    "json[]": some('{"{\\"a\\":\n1}",NULL}'),
    "timestamptz[]": some("{infinity,-infinity,NULL}"),
    "numeric(4,2)[]": some("{1.10,NaN,NULL}"),
    "every.mood": some("glad", "", "so, so", 'it\'s "odd"', "tab\t\\.", "ärgerlich"),
    "every.mood[]": some('{glad,"",NULL,"tab\t\\\\."}'),
    "every.pair": some("(,,)", '(1,"a ""b"", \\\\",1.10)', '(,"",NaN)', '(-1,"tab\t\n",)'),
    "every.pair[]": some('{"(,,)",NULL,"(1,\\"x,\\"\\"y\\",2)"}'),
    "every.short": SHORT,
    "every.span": some("[-0,Infinity]", "empty", "(,NaN)"),
}


def edges(types: dict[str, Values]) -> list[list[str | None]]:
    """Return rows that hold every edge of every type once, and a row of NULLs."""
    return [
        *map(list, zip_longest(*(values.edges for values in types.values()))),
        [None] * len(types),
    ]


def declare(dsn: str) -> None:
    """Make the types of the table in a database that has none of them yet."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        for statement in DECLARED:
            connection.execute(statement.encode())
        for name in extensions(dsn):
            connection.execute(f"CREATE EXTENSION {name} SCHEMA every".encode())


def extensions(dsn: str) -> list[str]:
    """Return which of the extensions this server has."""
    there = "SELECT name FROM pg_available_extensions"
    available = {row["name"] for row in rows(dsn, there)}
    return [name for name in EXTENSIONS if name in available]


def columns(dsn: str) -> dict[str, Values]:
    """Return every type that a server has with its values, those of some extensions included."""
    names = extensions(dsn)
    more = {f"every.{EXTENSIONS[name][0]}": some(*EXTENSIONS[name][1]) for name in names}
    left_out = set() if _has_xml(dsn) else {"xml"}
    return {name: values for name, values in (COLUMNS | more).items() if name not in left_out}


def _has_xml(dsn: str) -> bool:
    # A server may be built without it.
    try:
        return bool(rows(dsn, "SELECT '<a/>'::xml::text"))
    except psycopg.errors.FeatureNotSupported:
        return False


def create(dsn: str, types: Iterable[str]) -> None:
    """Make the table, empty."""
    listed = ", ".join(f'"{name.replace(chr(34), "_")}" {name}' for name in types)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            f"CREATE TABLE every.type (id bigint PRIMARY KEY, at date NOT NULL, {listed})".encode()
        )


def fill(dsn: str, values: list[list[str | None]]) -> None:
    """Insert rows, each a text or None per type."""
    with psycopg.connect(dsn) as connection:
        for number, row in enumerate(values):
            # Literals have no type: each is read by the type of its column.
            listed = sql.SQL(", ").join(map(sql.Literal, [str(number), "2020-01-01", *row]))
            connection.execute(sql.SQL("INSERT INTO every.type VALUES ({})").format(listed))
