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
from contextlib import suppress
from typing import TypeAlias

import msgpack
import msgspec

from migrator.model import tags as copier
from migrator.model.value import Value, depth, has_utf8
from migrator.stores.redis.names import NESTING, compact, key_native

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


def _odd(value: Value) -> Value:
    raise TypeError


def to_json(value: Value) -> bytes:
    """Lists, records and scalars that JSON has. Raises ValueError for a NaN or an infinity."""
    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:
        return compact(value).encode()
    # That encoder writes null for what is no number, without a word.
    return compact(value).encode() if b"null" in data else data


def from_json(data: bytes) -> Value:
    """The value of JSON. Raises ValueError for what is none."""
    try:
        return msgspec.json.decode(data)
    except msgspec.ValidationError:
        raise ValueError("a number out of range") from None
    except msgspec.DecodeError:
        return _DECODER.decode(data.decode())  # escapes of unpaired surrogates


def is_plain(value: Value) -> bool:
    """Whether JSON has a value as it is; numbers that are none are not looked for."""
    try:
        # msgpack hands every type that is not plain, Int64 too, to the hook, at C speed;
        # only bytes it takes itself, and marks them with one of three bytes.
        packed = msgpack.packb(value, default=_odd, strict_types=True)
        if b"\xc4" in packed or b"\xc5" in packed or b"\xc6" in packed:
            compact(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def dump(value: Value, plain: bool = False) -> tuple[bytes, copier.Tags]:
    """JSON of a value, and its tags. Raises one of UNFIT for what can't be held.

    ``plain`` says that ``is_plain`` holds already.
    """
    tags: copier.Tags = {}
    data = b""
    if plain or is_plain(value):
        with suppress(ValueError):  # a NaN, or an infinity
            data = to_json(value)
    if not data:
        data = to_json(copier.lower(value, key_native, "", tags))
    # Every level takes two characters.
    deep = len(data) > 2 * NESTING and data.count(b"[") + data.count(b"{") > NESTING
    if deep and depth(value) > NESTING:
        raise ValueError(f"it nests deeper than {NESTING} levels")
    return data, tags


# ---------------------------------------------------------------- entries


def encode(value: Value, plain: bool = False) -> tuple[bytes, Note | None]:
    """The bytes of an entry, and the note they need. Raises one of UNFIT. ``plain`` as above."""
    kind = type(value)
    if kind is str:
        if not has_utf8(value):  # type: ignore[arg-type]
            return value.encode("utf-8", "surrogatepass"), TEXT  # type: ignore[attr-defined]
        data: bytes = value.encode()  # type: ignore[attr-defined]
        return data, TEXT if looks_like_json(data) else None
    if kind is bytes:
        return value, RAW  # type: ignore[return-value]
    if kind is not dict and kind is not list and not key_native(value):
        tags: copier.Tags = {}
        held = copier.lower(value, key_native, "", tags)
        if type(held) is str:
            return held.encode("utf-8", "surrogatepass"), tags[""]
    data, tags = dump(value, plain)
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
