"""How keys, entry names and values lie in the embedded store.

Values are MessagePack: plain kinds as themselves, the others as an extension that holds the
model's tag and carrier. The copier and the observer read them by two different libraries and
by code of their own.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import TypeAlias

import msgpack
import msgspec

from migrator.errors import DoesNotFit
from migrator.model import tags, witness
from migrator.model.block import Block, check_deadline
from migrator.model.rules import Entries
from migrator.model.value import INT64_MAX, INT64_MIN, Int64, Set, Value, depth, has_utf8

Column: TypeAlias = str | int | bytes
Row: TypeAlias = tuple[Column, str | bytes, bytes, int | None]
Decode: TypeAlias = Callable[[bytes], Value]

# What every supported msgpack carries; some carry more. Sets pass through Python code.
NESTING = 500
SET_NESTING = 100
LENGTH = 1_000_000_000  # SQLite's own bound for a value
TAGGED, INT64 = 1, 2
_UNFIT = (TypeError, ValueError, OverflowError, RecursionError)
_LONG = struct.Struct(">q")


def _extend(value: Value) -> msgpack.ExtType:
    if type(value) is Int64:
        return msgpack.ExtType(INT64, _LONG.pack(value))
    if type(value) is Set and depth(value) > SET_NESTING:
        raise ValueError(f"sets nest deeper than {SET_NESTING}")
    return msgpack.ExtType(TAGGED, encode(list(tags.to_carrier(value))))


class _Packers(threading.local):
    """A packer of each thread; making one costs more than packing a small value."""

    def __init__(self) -> None:
        self.idle: msgpack.Packer | None = _packer()


def _packer() -> msgpack.Packer:
    return msgpack.Packer(
        default=lambda value: _extend(value), strict_types=True, unicode_errors="surrogatepass"
    )


_packers = _Packers()


class _Packing:
    """Takes this thread's packer; a nested use (inside an extension) gets one of its own."""

    def __enter__(self) -> Callable[[Value], bytes]:
        self._packer = _packers.idle or _packer()
        _packers.idle = None
        pack: Callable[[Value], bytes] = self._packer.pack
        return pack

    def __exit__(self, kind: object, *_: object) -> None:
        # After an error a packer keeps what it had packed so far.
        _packers.idle = self._packer if kind is None else _packer()


def encode(value: Value) -> bytes:
    """The stored bytes of a value. Raises TypeError or ValueError for what can't be stored."""
    with _Packing() as pack:
        return pack(value)


def _copied(code: int, data: bytes) -> Value:
    if code == INT64:
        return Int64(*_LONG.unpack(data))
    tag, held = decode(data)  # type: ignore[misc]
    return tags.from_carrier(tag, held)  # type: ignore[has-type]


def _observed(code: int, data: bytes) -> Value:
    if code == INT64:
        return Int64(int.from_bytes(data, "big", signed=True))
    tag, held = observe(data)  # type: ignore[misc]
    return witness.witness(tag, held)  # type: ignore[has-type]


_unpackb = partial(msgpack.unpackb, strict_map_key=True, unicode_errors="surrogatepass")
_unpack = partial(_unpackb, ext_hook=_copied)
_decoder = msgspec.msgpack.Decoder(ext_hook=lambda code, data: _copied(code, bytes(data)))


def decode(data: bytes) -> Value:
    """The value of stored bytes, for copying."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _unpack(data)  # unpaired surrogates, which the faster reader refuses


# The value of stored bytes, for verifying.
observe: Decode = partial(_unpackb, ext_hook=_observed)


class Matcher:
    """Tells, without decoding, whether rows hold the entries of a block; for verifying.

    The encoder is not the copier's. It also takes kinds that lie here as extensions, and would
    make text of some: those the second packer, which knows plain kinds alone, refuses. A no may
    be wrong and is looked at by decoding. One for each thread.
    """

    def __init__(self) -> None:
        self._encode = msgspec.msgpack.Encoder().encode
        self._plain = msgpack.Packer(strict_types=True).pack

    def __call__(self, entries: Entries, rows: list[tuple[str | bytes, bytes]]) -> bool:
        encode = self._encode
        try:
            # A name that is bytes is found under none, which is a no.
            if len(rows) != len(entries) or any(
                encode(entries[name]) != value  # type: ignore[index]
                for name, value in rows
            ):
                return False
            self._plain([*entries.values()])
        except (KeyError, *_UNFIT):
            return False
        return True


def to_column(value: Value) -> Column:
    """A key as SQLite holds it: text and whole numbers as they are, other kinds as bytes."""
    if type(value) is int and INT64_MIN <= value <= INT64_MAX:
        return value
    if type(value) is str:
        return to_name(value)
    return encode(value)


def from_column(column: Column, decode: Decode) -> Value:
    """The key behind a column."""
    if type(column) is bytes:
        return from_name(column) if column[:1] == b"\xc1" else decode(column)
    return column


def key_column(id: Value) -> Column:
    """``to_column`` for a block that is to be written. Raises DoesNotFit naming the key."""
    try:
        return to_column(id)
    except _UNFIT as error:
        raise DoesNotFit(f"the key can't be held: {error}", key=id) from None


def to_name(name: str) -> str | bytes:
    """An entry's access path, or a text key, as SQLite holds it."""
    if has_utf8(name):
        return name
    # 0xC1 is never the first byte of a MessagePack value, so no other key looks like this.
    return b"\xc1" + name.encode("utf-8", "surrogatepass")


def from_name(name: str | bytes) -> str:
    """The text behind a name."""
    return name if type(name) is str else name[1:].decode("utf-8", "surrogatepass")  # type: ignore[union-attr]


def rows(block: Block) -> list[Row]:
    """The rows of a block. Raises DoesNotFit naming key and path."""
    if not block.entries:
        raise DoesNotFit("a block has at least one entry", key=block.id)
    check_deadline(block.id, block.expires)
    column, entries = key_column(block.id), block.entries
    try:
        with _Packing() as pack:
            values = [*map(pack, entries.values())]
    except _UNFIT:
        values = [_packed(block, path) for path in entries]
    if max(map(len, values)) > LENGTH:
        size, path = max(zip(map(len, values), entries, strict=True))
        why = f"{size:,} bytes are over the limit of {LENGTH:,}"
        raise DoesNotFit(why, key=block.id, path=path)
    names = entries if "".join(entries).isascii() else map(to_name, entries)
    return [*zip(repeat(column), names, values, repeat(block.expires))]


def _packed(block: Block, path: str) -> bytes:
    try:
        return encode(block.entries[path])
    except _UNFIT as error:
        raise DoesNotFit(f"it can't be held: {error}", key=block.id, path=path) from None
