"""The one spelling of a JSON value that digests can rest on, and its strict reader."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, NoReturn

from shared.chain.verdict import Broken, Reason

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_JSON_BYTES = 16 * 1024 * 1024
MAX_JSON_DEPTH = 64
# Each value costs a reader a hundred bytes and more, however few it takes to write it.
MAX_JSON_PARTS = 200_000


def canonical_json(
    value: object, members: Callable[[object], dict[str, object]] | None = None
) -> bytes:
    """Encode with members sorted by code point, no spaces, ASCII escapes and no newline.

    ``members`` gives the members of an object that is no dictionary. Raises ValueError for NaN and
    infinities, TypeError for what JSON cannot say.
    """
    return json.dumps(
        value,
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=True,
        allow_nan=False,
        default=members,
    ).encode("ascii")


def sha256_hex(data: bytes) -> str:
    """SHA-256 as 64 lowercase hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def parse_json(data: bytes, *, place: str = "json") -> object:
    """Read JSON that leaves no room for two readings.

    Refused with Broken: more than MAX_JSON_BYTES, MAX_JSON_PARTS (commas, opening brackets and
    braces outside strings) or MAX_JSON_DEPTH, anything but UTF-8, a
    member named twice, numbers that are not integers, NaN and infinities, half a surrogate
    pair, anything after the value. `place` says in the parameters which text it was.
    """
    if len(data) > MAX_JSON_BYTES:
        raise _refused(place, "size")
    if _parts_exceed(data, MAX_JSON_PARTS):
        raise _refused(place, "parts")
    try:
        value = _loaded(data)
        if b"\\u" in data:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeError:
        raise _refused(place, "encoding") from None
    except KeyError:
        raise _refused(place, "duplicate_member") from None
    except ValueError:
        raise _refused(place, "syntax") from None
    except RecursionError:
        raise _refused(place, "depth") from None
    if _depth_exceeds(value, MAX_JSON_DEPTH):
        raise _refused(place, "depth")
    return value


def _refused(place: str, problem: str) -> Broken:
    return Broken(Reason.JSON_INVALID, place=place, problem=problem)


def _loaded(data: bytes) -> object:
    # Decoded here: json.loads would guess UTF-16 from bytes and skip a byte order mark.
    value: object = json.loads(
        data.decode("utf-8"),
        object_pairs_hook=_members,
        parse_float=_not_an_integer,
        parse_constant=_not_an_integer,
    )
    return value


def _members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise KeyError
    return found


def _not_an_integer(text: str) -> NoReturn:
    raise ValueError(text)


def _parts_exceed(data: bytes, limit: int) -> bool:
    """Tell before anything is built; what is no JSON may be told either way."""
    if _openings(data) <= limit:
        return False
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Every part brings at most a name and a text: with more quotes, splitting need not be paid for.
    if bare.count(b'"') > 4 * (limit + 1):
        return True
    return _openings(b"".join(bare.split(b'"')[::2])) > limit


def _openings(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _depth_exceeds(value: object, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [child for parent in level for child in _containers_in(parent)]
        if not level:
            return False
    return True


def _containers_in(value: object) -> list[object]:
    if isinstance(value, dict):
        return [child for child in value.values() if isinstance(child, dict | list)]
    if isinstance(value, list):
        return [child for child in value if isinstance(child, dict | list)]
    return []
