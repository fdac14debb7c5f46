"""Keys, access paths and values as text that people can read, for stores of text columns.

A value is JSON: what JSON has is written as it is, every other kind as its carrier, with its
tag in a column beside it. A key or path is itself; what is no text, or text that a column
can't hold (U+0000, unpaired surrogates), is ``#`` and JSON: ``#2345``, ``#"6500…" {"":
"objectid"}``. The copier and the observer put tagged values together by code of their own.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from types import NoneType
from typing import Any, TypeAlias

import msgspec

from migrator.model import tags as copier
from migrator.model import witness
from migrator.model.value import Value, depth, has_utf8

Load: TypeAlias = Callable[[str, str | None], Value]

MARK = "#"
NESTING = 200
UNFIT = (TypeError, ValueError, OverflowError, RecursionError)


def reader(decoder: json.JSONDecoder) -> Callable[[str], Value]:
    """As ``decoder.decode``, in half the time where no blanks are around the JSON."""

    def read(text: str) -> Value:
        try:
            value, end = decoder.scan_once(text, 0)  # type: ignore[attr-defined]
        except StopIteration:
            end = -1
        return value if end == len(text) else decoder.decode(text)

    return read


_DECODER = json.JSONDecoder(strict=False)
_read = reader(_DECODER)


def strict_json(text: bytes | bytearray) -> Any:
    """What JSON from outside holds. Raises ValueError also for NaN, for infinities, and for numbers
    beyond any double, which would become one; RecursionError for too many levels."""
    return json.loads(text, parse_constant=_no_constant, parse_float=_double)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} has a tag of its own (double)")


def _double(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is beyond any double")
    return number


# Kinds of scalars that JSON has, whatever the value; of doubles it has the finite ones.
_AS_IT_IS = frozenset((str, int, bool, NoneType))


def native(value: Value) -> bool:
    """Whether JSON has this scalar as it is. The kind of a whole number follows its size."""
    kind = type(value)
    if kind in _AS_IT_IS:
        return True
    return kind is float and value - value == 0  # type: ignore[operator]  # NaN and infinities


def is_plain(value: Value, levels: int = NESTING) -> bool:
    """Whether a value has no more levels, and ``native`` holds for all in it: no tag is needed."""
    kind = type(value)
    if kind is not dict and kind is not list:
        return native(value)
    if not levels:
        return False
    items: Iterable[Any] = value.values() if kind is dict else value  # type: ignore
    for item in items:
        # Scalars are looked at here, which saves a call for each.
        kind = type(item)
        if kind in _AS_IT_IS or (kind is float and item - item == 0):
            continue
        if not is_plain(item, levels - 1):
            return False
    return True


def to_json(value: Value) -> bytes:
    """JSON of lists, records and what is native: for others it is wrong without a word."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return compact(value).encode()


def dump(value: Value) -> tuple[str, str | None]:
    """The JSON of a value and of its tags. Raises one of UNFIT for what can't be held."""
    data, tags = dump_bytes(value)
    return data.decode(), to_json(tags).decode() if tags else None


def dump_bytes(value: Value) -> tuple[bytes, copier.Tags]:
    """The JSON of a value, and its tags. Raises one of UNFIT for what can't be held."""
    tags: copier.Tags = {}
    if is_plain(value):
        return to_json(value), tags
    data = to_json(copier.lower(value, native, "", tags))
    # Every level takes two characters.
    deep = len(data) > 2 * NESTING and data.count(b"[") + data.count(b"{") > NESTING
    if deep and depth(value) > NESTING:
        raise ValueError(f"it nests deeper than {NESTING} levels")
    return data, tags


def load(text: str, tags: str | None) -> Value:
    """The value behind its JSON, for copying. Raises ValueError for what is none."""
    value = _read(text)
    return value if tags is None else copier.raise_(value, _read(tags))  # type: ignore[arg-type]


def observe(text: str, tags: str | None) -> Value:
    """The value behind its JSON, for verifying."""
    value = _read(text)
    return value if tags is None else witness.untag(value, _read(tags))  # type: ignore[arg-type]


def raise_all(body: object, tags: object) -> Any:
    """JSON that somebody sent, with what its tags say; lists and records are changed in place.

    Raises ValueError for tags that are none, and for one that does not fit what it stands at.
    """
    if type(tags) is not dict or not all(type(tag) is str for tag in tags.values()):
        raise ValueError("tags is an object of texts, by access path")
    if not tags:
        return body
    try:
        made = copier.raise_(body, tags)
    except (ValueError, TypeError) as error:
        raise ValueError(f"tags: {error}") from None
    fit: copier.Tags = {}
    copier.lower(made, native, "", fit)
    for path, tag in tags.items():
        if path not in fit:  # what a store would take for changed by somebody else
            raise ValueError(f"tags: {tag!r} does not fit what is at {path or 'the whole body'}")
    return made


def to_text(key: Value) -> str:
    """A key or an access path as a column holds it. Raises one of UNFIT."""
    if type(key) is str and not key.startswith(MARK) and "\0" not in key and has_utf8(key):
        return key
    return escaped(key)


def escaped(key: Value) -> str:
    """The form of a key that is not itself. Raises one of UNFIT."""
    tags: copier.Tags = {}
    held = copier.lower(key, native, "", tags)
    if depth(held) > NESTING:
        raise ValueError(f"it nests deeper than {NESTING} levels")
    return f"{MARK}{compact(held)}" + (f" {compact(tags)}" if tags else "")


def from_text(text: str, load: Load) -> Value:
    """The key or access path behind its column. Raises ValueError for what is none."""
    if not text.startswith(MARK):
        return text
    _, end = _DECODER.raw_decode(text, 1)
    return load(text[1:end], text[end + 1 :] or None)


def compact(value: Value) -> str:
    """JSON without blanks, with escapes where UTF-8 has no form for a text.

    Keys have this form, which may never change.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text if has_utf8(text) else json.dumps(value, allow_nan=False, separators=(",", ":"))
