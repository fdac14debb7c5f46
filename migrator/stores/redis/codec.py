"""Values as Redis holds them: bytes that a reader with the plain driver understands.

Text is its UTF-8, bytes are themselves, and what JSON has (numbers, true, null, lists, records)
is JSON. All other kinds are carried by text or JSON, and a *note* says which: the tag of the
value, or tags by access path for what is inside it. A note is also needed for text that looks
like JSON. Without one, in a block of ours, what looks like JSON is JSON.

The observer has a decoder of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from migrator.model import tags as copier
from migrator.model.json_text import compact, dump_bytes, native
from migrator.model.value import Value, has_utf8

Note: TypeAlias = str | dict[str, str]

RAW, TEXT = "raw", "text"
_NUMBER = re.compile(rb"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_DECODER = json.JSONDecoder(strict=False)


def looks_like_json(data: bytes) -> bool:
    """Whether bytes without a note are taken for JSON; texts that look so get one."""
    first = data[:1]
    if first in (b"{", b"["):
        return True
    if first in (b"t", b"f", b"n"):
        return data in (b"true", b"false", b"null")
    return _NUMBER.fullmatch(data) is not None


# ---------------------------------------------------------------- JSON


def from_json(data: bytes) -> Value:
    """The value of JSON. Raises ValueError for what is none."""
    try:
        return msgspec.json.decode(data)
    except msgspec.ValidationError:
        raise ValueError("a number out of range") from None
    except msgspec.DecodeError:
        return _DECODER.decode(data.decode())  # escapes of unpaired surrogates


def from_jsons(texts: Sequence[bytes]) -> list[Value]:
    """The values of texts that are known to be JSON, each by itself: of others they are wrong."""
    try:
        values: list[Value] = msgspec.json.decode(b"[%b]" % b",".join(texts))
    except msgspec.DecodeError:
        return [from_json(text) for text in texts]
    return values


# ---------------------------------------------------------------- entries


def encode(value: Value) -> tuple[bytes, Note | None]:
    """The bytes of an entry, and the note they need. Raises one of UNFIT."""
    kind = type(value)
    if kind is str:
        if not has_utf8(value):  # type: ignore[arg-type]
            return value.encode("utf-8", "surrogatepass"), TEXT  # type: ignore[attr-defined]
        data: bytes = value.encode()  # type: ignore[attr-defined]
        return data, TEXT if looks_like_json(data) else None
    if kind is bytes:
        return value, RAW  # type: ignore[return-value]
    if kind is not dict and kind is not list and not native(value):
        tags: copier.Tags = {}
        held = copier.lower(value, native, "", tags)
        if type(held) is str:
            return held.encode("utf-8", "surrogatepass"), tags[""]
    data, tags = dump_bytes(value)
    return data, (tags[""] if tags.keys() == {""} else tags) if tags else None


def decode(data: bytes, note: Note | None) -> Value:
    """The value of an entry of ours. A note that no longer fits is ignored."""
    if note is not None:
        try:
            return _noted(data, note)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            pass
    if looks_like_json(data):
        try:
            return from_json(data)
        except (ValueError, RecursionError):
            pass
    return plain(data)


def plain(data: bytes) -> str | bytes:
    """Bytes that nothing is known of: text where they are UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _noted(data: bytes, note: Note) -> Value:
    if note == RAW:
        return data
    if note == TEXT:
        return data.decode("utf-8", "surrogatepass")
    if type(note) is str and note != "set":
        return copier.from_carrier(note, data.decode("utf-8", "surrogatepass"))
    tags = {"": note} if type(note) is str else note
    return copier.raise_(from_json(data), tags)  # type: ignore[arg-type]


def read_note(data: bytes) -> Note | None:
    """A note from its stored form; None for none, or for what is none of ours."""
    return checked_note(_try_json(data)) if data else None


def checked_note(held: Value) -> Note | None:
    """What is a note; None for anything else, which somebody else put there."""
    if type(held) is str:
        return held
    if type(held) is dict and held and all(type(tag) is str for tag in held.values()):
        return held
    return None


def _try_json(data: bytes) -> Value:
    try:
        return from_json(data)
    except (ValueError, RecursionError):
        return None


def write_side(notes: dict[str, Note]) -> bytes:
    """The reserved field of a hash; it is there in every block of ours."""
    return compact({"tags": notes}).encode() if notes else b"{}"


def read_side(data: bytes) -> dict[str, Note]:
    """The notes of a hash by access path."""
    held = _try_json(data)
    notes = held.get("tags") if type(held) is dict else None
    if type(notes) is not dict:
        return {}
    found = {path: checked_note(note) for path, note in notes.items()}
    return {path: note for path, note in found.items() if note is not None}
