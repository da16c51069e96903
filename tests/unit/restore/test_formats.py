"""What stands in a row stays inside its value, whoever wrote the row."""

from __future__ import annotations

import json

import pytest

from shared.chain.verdict import Broken, Reason
from shared.restore.formats import Pick, csv_writer, json_writer

DOCUMENT = (Pick("id", "integer", 0), Pick("doc", "json", 1))
FORGED = (
    '1},{"id":666',
    '1,"id":666',
    "",
    "{",
    '{"a": 1} {"b": 2}',
    "NaN",
    "Infinity",
    '"an open text',
    '"a\tb"',
    "[" * 100_000,
)


@pytest.mark.parametrize("text", FORGED, ids=range(len(FORGED)))
def test_a_json_value_that_is_not_json_writes_no_member_of_its_own(text: str) -> None:
    line = b"7\t" + text.replace("\t", "\\t").encode()
    written = json_writer(DOCUMENT)(line)
    assert json.loads(written) == {"id": 7, "doc": text}
    assert written.count(b"\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"a": [1, 2.50, -0, 1e400], "é": null}',
        "123456789012345678901234567890.00000000000000000001",
        "9" * 5000,
        ' {"a":\n 1} ',
        '"\\ud83d\\ude00 \\u0000"',
        "true",
    ],
    ids=range(6),
)
def test_a_json_value_is_embedded_with_every_digit(text: str) -> None:
    line = b"7\t" + text.replace("\\", "\\\\").replace("\n", "\\n").encode()
    embedded = text.replace("\n", " ")
    assert json_writer(DOCUMENT)(line) == f'{{"id":7,"doc":{embedded}}}\n'.encode()


def test_bytes_that_are_not_utf8_are_named_and_never_passed_on() -> None:
    write = csv_writer((Pick("id", "integer", 0), Pick("name", "text", 1)), 2)
    assert write("7\té".encode()) == "7,é\n".encode()
    with pytest.raises(Broken) as caught:
        write(b"7\tcaf\xe9")
    assert caught.value.reason is Reason.ROW_ESCAPE
