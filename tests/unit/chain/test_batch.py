"""The lines a batch is made of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.chain.batch import (
    PREAMBLE,
    End,
    Header,
    copy_line,
    end_line,
    file_name,
    header_line,
    quote,
    unescape,
)
from shared.chain.verdict import Verdict
from shared.chain.verify import verify_chain
from tests.unit.chain.scribe import ATTEMPTS, JOB, MANIFEST, TASKS, chain, column, numbered


def test_the_header_is_a_comment_of_canonical_json() -> None:
    header = Header(JOB, 2, "ab" * 32, ("2026-01-01", "tab\there\r\n"), "tallystick 0.1.0")
    assert header_line(header) == (
        b'-- tallystick {"after":["2026-01-01","tab\\there\\r\\n"],"format":1,"job":"'
        + JOB.encode()
        + b'","prev":"'
        + b"ab" * 32
        + b'","seq":2,"writer":"tallystick 0.1.0"}\n'
    )


def test_the_end_is_a_comment_of_canonical_json() -> None:
    end = End(1, (("app.tasks", 1), ("app.a", 0)), 12, ("t", "1"), final=False)
    assert end_line(end) == (
        b'-- end {"final":false,"last":["t","1"],"raw_bytes":12,"roots":1,'
        b'"rows":{"app.a":0,"app.tasks":1}}\n'
    )


def test_the_preamble_stops_at_errors_and_pins_what_values_mean() -> None:
    assert PREAMBLE == (
        b"\\set ON_ERROR_STOP on\n"
        b"SET client_encoding = 'UTF8';\n"
        b"SET standard_conforming_strings = on;\n"
        b"SET search_path = pg_catalog, pg_temp;\n"
        b"SET row_security = off;\n"
        b"SET datestyle = 'ISO, YMD';\n"
        b"SET intervalstyle = 'postgres';\n"
        b"SET timezone = 'UTC';\n"
        b"SET extra_float_digits = 3;\n"
        b"SET bytea_output = 'hex';\n"
        b"SET array_nulls = on;\n"
        b"SET lc_monetary = 'C';\n"
        b"SET xmloption = content;\n"
    )


def test_a_block_names_its_copied_columns() -> None:
    assert copy_line(TASKS) == b'COPY "app"."tasks" ("id", "note", "done_at") FROM stdin;\n'


def test_names_are_quoted_whatever_they_hold() -> None:
    table = replace(ATTEMPTS, name='a"; DROP', columns=(column("é"),))
    assert copy_line(table) == 'COPY "app"."a""; DROP" ("é") FROM stdin;\n'.encode()


@pytest.mark.parametrize("name", ["", "a\nb", "a\rb", "a\0b", "\x7f"])
def test_a_name_that_no_line_can_hold_is_refused(name: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the name itself is the message
        quote(name)


def test_a_table_of_generated_columns_alone_has_empty_rows() -> None:
    hollow = replace(
        ATTEMPTS,
        name="hollow",
        columns=(column("task_id", generated="1"), column("x", generated="2")),
    )
    assert copy_line(hollow) == b'COPY "app"."hollow" FROM stdin;\n'
    manifest, files = chain(
        replace(MANIFEST, tables=(TASKS, hollow)), ((b"1\tx\t2026-01-01\n", b"\n\n\n"),)
    )
    report = verify_chain(manifest, numbered(files))
    assert report.verdict is Verdict.CONSISTENT
    assert report.position is not None
    assert report.position.rows == 4


def test_a_file_is_named_by_its_position() -> None:
    assert file_name(1) == "000001.sql.zst"
    assert file_name(123456) == "123456.sql.zst"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (b"", ""),
        (b"plain", "plain"),
        (b"\\N", None),
        (b"\\\\N", "\\N"),
        (b"a\\Nb", "aNb"),
        (b"\\b\\f\\n\\r\\t\\v\\\\", "\b\f\n\r\t\v\\"),
        (b"\\101\\x42\\103d\\1018", "ABCdA8"),
        (b"\\x4", "\x04"),
        (b"\\x4g\\xg", "\x04gxg"),
        (b"\\303\\251", "é"),
        (b"\\q\\.", "q."),
        ("\\é".encode(), "é"),
    ],
)
def test_copy_text_is_unescaped_as_postgres_does(field: bytes, value: str | None) -> None:
    assert unescape(field) == value


@pytest.mark.parametrize("field", [b"\\", b"a\\\\\\", b"\xff", b"\\377", b"\\0", b"\\x00"])
def test_a_field_that_is_no_text_is_refused(field: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - decoding errors have their own words
        unescape(field)
