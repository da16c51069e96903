"""One spelling for each JSON value, and a reader that takes no other liberties."""

from __future__ import annotations

import pytest

from shared.chain import canonical
from shared.chain.canonical import canonical_json, parse_json, sha256_hex
from shared.chain.verdict import Broken, Reason


def problem_of(data: bytes) -> object:
    with pytest.raises(Broken) as caught:
        parse_json(data, place="end")
    assert caught.value.reason is Reason.JSON_INVALID
    assert caught.value.params["place"] == "end"
    return caught.value.params["problem"]


def test_canonical_json_is_sorted_dense_and_ascii() -> None:
    value = {"b": [1, None, True], "a": 'é"\n\u2028\U0001f600', "Z": {}}
    assert canonical_json(value) == (
        b'{"Z":{},"a":"\\u00e9\\"\\n\\u2028\\ud83d\\ude00","b":[1,null,true]}'
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_canonical_json_has_no_spelling_for_nan(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json([value])


def test_a_digest_is_lowercase_hexadecimal() -> None:
    assert sha256_hex(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b'{"a":1,"a":1}', "duplicate_member"),
        (b'[{"a":{"b":1,"b":2}}]', "duplicate_member"),
        (b'{"a":1,"\\u0061":1}', "duplicate_member"),
        (b"NaN", "syntax"),
        (b"-Infinity", "syntax"),
        (b"1.5", "syntax"),
        (b"1e3", "syntax"),
        (b"{} {}", "syntax"),
        (b"", "syntax"),
        (b"[1,]", "syntax"),
        (b'"\n"', "syntax"),
        (b"9" * 5000, "syntax"),
        (b'"\xff"', "encoding"),
        (b"\xef\xbb\xbf{}", "syntax"),
        ("{}".encode("utf-16"), "encoding"),
        (b'"\\ud800"', "encoding"),
        (b'{"\\udfff":1}', "encoding"),
        (b"[" * 65 + b"]" * 65, "depth"),
        (b"[" * 200_000, "depth"),
        (b'{"a":' * 200_000 + b"1" + b"}" * 200_000, "depth"),
        (b"[" * 200_001, "parts"),
        (b"[" + b"1," * 200_000 + b"1]", "parts"),
        (b"[" + b'"\\\\",' * 200_000 + b"1]", "parts"),
        (b"{" + b'"":{},' * 100_000 + b"}", "parts"),
        (b"[" + b'""' * 500_000 + b"," * 200_001, "parts"),
    ],
)
def test_json_with_room_for_another_reading_is_broken(data: bytes, problem: str) -> None:
    assert problem_of(data) == problem


@pytest.mark.parametrize("text", [",[{" * 100_000, '\\",[{' * 100_000, '"' * 500_000])
def test_what_stands_inside_a_text_is_no_part_of_its_own(text: str) -> None:
    assert parse_json(canonical_json([text])) == [text]
    assert parse_json(canonical_json([text, *[0] * 199_998])) == [text, *[0] * 199_998]


def test_json_is_read_up_to_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    deepest = b"[" * 64 + b"]" * 64
    assert canonical_json(parse_json(deepest)) == deepest
    monkeypatch.setattr(canonical, "MAX_JSON_BYTES", 10)
    assert parse_json(b'"12345678"') == "12345678"
    assert problem_of(b'"123456789"') == "size"
