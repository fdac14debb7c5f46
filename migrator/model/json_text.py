"""Keys, access paths and values as text that people can read, for stores of text columns.

A value is JSON: what JSON has is written as it is, every other kind as its carrier, with its
tag in a column beside it. A key or path is itself; what is no text, or text that a column
can't hold (U+0000, unpaired surrogates), is ``#`` and JSON: ``#2345``, ``#"6500…" {"":
"objectid"}``. The copier and the observer put tagged values together by code of their own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeAlias

from migrator.model import tags as copier
from migrator.model import witness
from migrator.model.value import Value, depth, has_utf8

Load: TypeAlias = Callable[[str, str | None], Value]

MARK = "#"
NESTING = 200
UNFIT = (TypeError, ValueError, OverflowError, RecursionError)
_DECODER = json.JSONDecoder(strict=False)


def native(value: Value) -> bool:
    """Whether JSON has this scalar as it is. The kind of a whole number follows its size."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or value is None:
        return True
    return kind is float and value - value == 0  # type: ignore[operator]  # NaN and infinities


def dump(value: Value) -> tuple[str, str | None]:
    """The JSON of a value and of its tags. Raises one of UNFIT for what can't be held."""
    tags: copier.Tags = {}
    text = _json(copier.lower(value, native, "", tags))
    if text.count("[") + text.count("{") > NESTING and depth(value) > NESTING:
        raise ValueError(f"nests deeper than {NESTING}")
    return text, _json(tags) if tags else None


def load(text: str, tags: str | None) -> Value:
    """The value behind its JSON, for copying. Raises ValueError for what is none."""
    value = _DECODER.decode(text)
    return value if tags is None else copier.raise_(value, _DECODER.decode(tags))


def observe(text: str, tags: str | None) -> Value:
    """The value behind its JSON, for verifying."""
    value = _DECODER.decode(text)
    return value if tags is None else witness.untag(value, _DECODER.decode(tags))


def to_text(key: Value) -> str:
    """A key or an access path as a column holds it. Raises one of UNFIT."""
    if type(key) is str and not key.startswith(MARK) and "\0" not in key and has_utf8(key):
        return key
    text, tags = dump(key)
    return f"{MARK}{text}" if tags is None else f"{MARK}{text} {tags}"


def from_text(text: str, load: Load) -> Value:
    """The key or access path behind its column. Raises ValueError for what is none."""
    if not text.startswith(MARK):
        return text
    _, end = _DECODER.raw_decode(text, 1)
    return load(text[1:end], text[end + 1 :] or None)


def _json(value: Value) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text if has_utf8(text) else json.dumps(value, allow_nan=False, separators=(",", ":"))
