"""PostgreSQL's logical replication messages, version 1 of ``pgoutput``; pure.

Only what a journal needs: which rows were touched, old and new, by the text of their columns.
The format is that of the manual's chapter "Logical Replication Message Formats".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

# Text of a column; None for NULL, and UNCHANGED for a value that was too long to be sent again.
UNCHANGED = object()
Tuple: TypeAlias = list[object]


@dataclass(frozen=True, slots=True)
class Relation:
    """A table as the following messages mean it; ``told`` are the columns that its replica
    identity has told of old rows."""

    id: int
    schema: str
    name: str
    columns: tuple[str, ...]
    told: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction that has been committed; ``xid`` are the low 32 bits of its number,
    ``committed`` microseconds since 2000 by the server's clock."""

    xid: int
    committed: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction; ``end`` is the position behind it."""

    end: int


@dataclass(frozen=True, slots=True)
class Change:
    """A row: ``I``, ``U`` or ``D``. ``old`` is its key or, by its replica identity, all of it;
    None where the key is what it was."""

    kind: str
    relation: int
    old: Tuple | None
    new: Tuple | None


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables that were emptied, without a word on their rows."""

    relations: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """What ``pg_logical_emit_message`` wrote."""

    prefix: str
    content: bytes


Parsed: TypeAlias = Relation | Begin | Commit | Change | Truncate | Message


def parse(data: bytes) -> Parsed | None:
    """One message; None for those a journal has no use for (types, origins)."""
    kind, at = data[:1], 1
    if kind == b"B":
        _, committed, xid = struct.unpack_from(">QqI", data, at)
        return Begin(xid, committed)
    if kind == b"C":
        _, _, end, _ = struct.unpack_from(">BQQq", data, at)
        return Commit(end)
    if kind == b"R":
        return _relation(data)
    if kind in (b"I", b"U", b"D"):
        return _change(kind.decode(), data)
    if kind == b"T":
        count, _ = struct.unpack_from(">IB", data, at)
        return Truncate(struct.unpack_from(f">{count}I", data, at + 5))
    if kind == b"M":
        prefix, at = _text(data, at + 9)
        (size,) = struct.unpack_from(">I", data, at)
        return Message(prefix, data[at + 4 : at + 4 + size])
    return None


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\0", at)
    return data[at:end].decode(), end + 1


def _relation(data: bytes) -> Relation:
    (id,) = struct.unpack_from(">I", data, 1)
    schema, at = _text(data, 5)
    name, at = _text(data, at)
    (count,) = struct.unpack_from(">H", data, at + 1)
    at += 3
    columns, told = [], []
    for _ in range(count):
        part_of_key = data[at] & 1
        column, at = _text(data, at + 1)
        columns.append(column)
        told += [column] if part_of_key else []
        at += 8
    return Relation(id, schema or "pg_catalog", name, tuple(columns), tuple(told))


def _change(kind: str, data: bytes) -> Change:
    (relation,) = struct.unpack_from(">I", data, 1)
    parts = dict(_tuples(data, 5))
    return Change(kind, relation, parts.get("K", parts.get("O")), parts.get("N"))


def _tuples(data: bytes, at: int) -> Iterator[tuple[str, Tuple]]:
    while at < len(data):
        which = data[at : at + 1].decode()
        (count,) = struct.unpack_from(">H", data, at + 1)
        at += 3
        values: Tuple = []
        for _ in range(count):
            tag = data[at : at + 1]
            at += 1
            if tag == b"t":
                (size,) = struct.unpack_from(">I", data, at)
                values.append(data[at + 4 : at + 4 + size].decode())
                at += 4 + size
            else:
                values.append(None if tag == b"n" else UNCHANGED)
        yield which, values
