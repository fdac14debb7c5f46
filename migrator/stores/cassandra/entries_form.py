"""How a block lies as entries: the layouts ``row`` and ``partition``.

A form says which table it needs, what of it is read, and which statements change a block. All
values are JSON text with their tags beside them; keys and access paths are text. ``version`` is
what a conditional write asks for: the stamp of the last write of a block (R10) or, where that was
a lightweight transaction, a number below zero that was drawn for it. All cells of a block live as
long as its deadline says; whoever gave one a life of its own is told so when the block is read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from migrator.stores.cassandra.columns_nested import pieces, quoted
from migrator.stores.cassandra.table_wire import Bytes, Row, Statement

# A value's JSON and the JSON of its tags.
Cell = tuple[bytes, Bytes]
Unpack = Callable[[bytes], Mapping[bytes, bytes]]
RESERVED = ("block", "entries", "tags", "expires", "version")


@dataclass(slots=True)
class Raw:
    """What lies under the key of one block, as bytes: each entry by its name.

    ``apart`` are the entries that do not end with the block.
    """

    key: bytes
    fields: dict[bytes, tuple[Bytes, Bytes]] = field(default_factory=dict)
    expires: int | None = None
    stamp: int = 0
    size: int = 0
    version: int | None = None
    apart: tuple[bytes, ...] = ()


@dataclass(slots=True)
class Change:
    """What a write does to a block: cells to put, names to remove, deadline, stamp and TTL.

    ``before`` is what lies there, so that only what is there needs a tombstone. ``version`` makes
    it a lightweight transaction that leaves this version where that of ``before`` is there; its
    stamp is then the server's.
    """

    key: bytes
    put: Mapping[bytes, Cell]
    remove: Iterable[bytes]
    expires: int | None
    stamp: int
    ttl: bytes
    before: Raw
    version: int | None = None

    @property
    def deadline(self) -> Any:
        """The column of the deadline: null only where one has to go."""
        return None if self.expires is None else number(self.expires)

    @property
    def left(self) -> bytes:
        """The version that it leaves."""
        return number(self.stamp if self.version is None else self.version)

    @property
    def using(self) -> tuple[str, list[Any]]:
        """The words for its stamp and TTL, and their values."""
        if self.version is not None:
            return "USING TTL ?", [self.ttl]
        return "USING TIMESTAMP ? AND TTL ?", [number(self.stamp), self.ttl]

    @property
    def stamped(self) -> tuple[str, list[Any]]:
        """As ``using``, for what removes."""
        return (
            ("", []) if self.version is not None else (" USING TIMESTAMP ?", [number(self.stamp)])
        )

    @property
    def condition(self) -> tuple[str, list[Any]]:
        """What its first statement asks for."""
        return ("", []) if self.version is None else asked(self.before)


def asked(before: Raw) -> tuple[str, list[Any]]:
    """The condition that the version still is what was read."""
    return " IF version = ?", [None if before.version is None else number(before.version)]


class Form(Protocol):
    """One of the two layouts, in one table."""

    single: bool
    columns: tuple[str, ...]
    held: tuple[str, ...]

    def lives(self, elements: bool) -> tuple[str, ...]:
        """What tells how long cells live, read behind ``columns``; with those of the elements of
        a map only where the server tells them."""

    def apart(self, rows: Sequence[Row], unpack: Unpack) -> Iterable[bytes]:
        """The entries of a block, read with ``lives``, that do not end when it does."""

    def table(self, name: str) -> str:
        """The statement that makes the table."""

    def gather(self, rows: Sequence[Row], unpack: Unpack) -> Raw:
        """What lies in the rows of one block, read by ``columns``."""

    def there(self, rows: Sequence[Row]) -> Raw:
        """The names that a block holds and its latest stamp, of rows read by ``held``."""

    def change(self, name: str, change: Change) -> list[Statement]:
        """The statements of one step that change a block."""

    def removal(self, name: str, before: Raw) -> list[Statement]:
        """Those of a lightweight transaction that removes a block which still is as it was."""


# Seconds by which lives may differ that were counted from one deadline, at different times.
_NEAR = 60


def _differ(life: Bytes, whole: Bytes) -> bool:
    """Whether a cell ends, or stays, apart from the block."""
    if life is None or whole is None:
        return life is not whole
    return abs(int.from_bytes(life, "big") - int.from_bytes(whole, "big")) > _NEAR


def number(value: int) -> bytes:
    """A bigint."""
    return value.to_bytes(8, "big", signed=True)


def integer(data: Bytes) -> int | None:
    """The value of a bigint."""
    return int.from_bytes(data, "big", signed=True) if data else None


def size_of(rows: Sequence[Row]) -> int:
    """The bytes of some rows."""
    return sum(len(data) for row in rows for data in row if data is not None)


def _raw(
    key: Bytes,
    fields: Mapping[bytes, tuple[Bytes, Bytes]],
    expires: Bytes,
    version: Bytes,
    rows: Sequence[Row],
) -> Raw:
    left = integer(version)
    stamp, size = max(0, left or 0), size_of(rows)
    return Raw(key or b"", dict(fields), integer(expires), stamp, size, left)


class PartitionForm:
    """A partition for a block, a clustering row for each entry."""

    single = False
    columns: tuple[str, ...] = ("block", "expires", "version", "entry", "value", "tags")
    held: tuple[str, ...] = (
        *columns[:4],
        "writetime(value)",
        "writetime(tags)",
        "writetime(version)",
    )

    def table(self, name: str) -> str:
        return (
            f"CREATE TABLE IF NOT EXISTS {name} (block text, entry text, value text, tags text, "
            "expires bigint static, version bigint static, PRIMARY KEY (block, entry))"
        )

    def lives(self, elements: bool) -> tuple[str, ...]:
        return ("ttl(expires)", "ttl(value)")

    def apart(self, rows: Sequence[Row], unpack: Unpack) -> Iterable[bytes]:
        return (row[3] for row in rows if row[3] is not None and _differ(row[-1], row[-2]))

    def gather(self, rows: Sequence[Row], unpack: Unpack) -> Raw:
        key, expires, version = rows[0][:3]
        fields = {row[3]: (row[4], row[5]) for row in rows if row[3] is not None}
        return _raw(key, fields, expires, version, rows)

    def there(self, rows: Sequence[Row]) -> Raw:
        found = self.gather(rows, unpack)
        stamps = [integer(stamp) or 0 for row in rows for stamp in row[4:]]
        found.stamp = max(found.stamp, *stamps)
        return found

    def change(self, name: str, change: Change) -> list[Statement]:
        (using, used), (stamped, stamp) = change.using, change.stamped
        condition, wanted = change.condition
        head = ["version = ?"]
        values: list[Any] = [*used, change.left]
        if change.expires is not None or change.before.expires is not None:
            head.append("expires = ?")
            values.append(change.deadline)
        statements = [
            Statement(
                f"UPDATE {name} {using} SET {', '.join(head)} "  # noqa: S608
                f"WHERE block = ?{condition}",
                [*values, change.key, *wanted],
            )
        ]
        plain = f"INSERT INTO {name} (block, entry, value) VALUES (?, ?, ?) {using}"  # noqa: S608
        noted = f"INSERT INTO {name} (block, entry, value, tags) VALUES (?, ?, ?, ?) {using}"  # noqa: S608
        for entry, (value, tags) in change.put.items():
            if tags is None and change.before.fields.get(entry, (None, None))[1] is None:
                statements.append(Statement(plain, [change.key, entry, value, *used]))
            else:
                statements.append(Statement(noted, [change.key, entry, value, tags, *used]))
        statements += [
            Statement(
                f"DELETE FROM {name}{stamped} WHERE block = ? AND entry = ?",  # noqa: S608
                [*stamp, change.key, entry],
            )
            for entry in change.remove
        ]
        return statements

    def removal(self, name: str, before: Raw) -> list[Statement]:
        condition, wanted = asked(before)
        # A condition on a static column goes with what removes static columns alone.
        return [
            Statement(
                f"DELETE version FROM {name} WHERE block = ?{condition}",
                [before.key, *wanted],
            ),
            Statement(f"DELETE FROM {name} WHERE block = ?", [before.key]),  # noqa: S608
        ]


class RowForm:
    """A row for a block: declared entries in columns of their own, all others in a map."""

    single = True

    def __init__(self, declared: Mapping[bytes, str]) -> None:
        self._declared = dict(declared)
        names = tuple(map(quoted, declared.values()))
        # ENTRIES is a word of CQL.
        self.columns = ("block", "expires", "version", '"entries"', "tags", *names)
        self.held = (*self.columns, "writetime(version)")

    def table(self, name: str) -> str:
        more = "".join(f"{quoted(column)} text, " for column in self._declared.values())
        return (
            f"CREATE TABLE IF NOT EXISTS {name} (block text PRIMARY KEY, {more}"
            '"entries" map<text, text>, tags map<text, text>, expires bigint, version bigint)'
        )

    def lives(self, elements: bool) -> tuple[str, ...]:
        declared = (f"ttl({quoted(column)})" for column in self._declared.values())
        return ("ttl(expires)", *declared, *(('ttl("entries")',) if elements else ()))

    def apart(self, rows: Sequence[Row], unpack: Unpack) -> Iterable[bytes]:
        ((*held,),) = rows
        values = held[len(self.columns) - len(self._declared) : len(self.columns)]
        whole, *lives = held[len(self.columns) :]
        for entry, value, life in zip(self._declared, values, lives, strict=False):
            if value is not None and _differ(life, whole):
                yield entry
        for data in filter(None, lives[len(self._declared) :]):
            if whole is None and not data[4:].strip(b"\xff"):
                continue  # none ends, as nearly always: their names need not be read
            told = zip(unpack(held[3] or b""), pieces(data, 4), strict=True)
            yield from (name for name, life in told if _differ(life, whole))

    def gather(self, rows: Sequence[Row], unpack: Unpack) -> Raw:
        key, expires, version, entries, tags, *more = rows[0]
        declared = more[: len(self._declared)]
        held = dict(unpack(entries) if entries else {})
        for entry, value in zip(self._declared, declared, strict=True):
            if value is not None:
                held[entry] = value
        notes = unpack(tags) if tags else {}
        fields = {entry: (value, notes.get(entry)) for entry, value in held.items()}
        return _raw(key, fields, expires, version, rows)

    def there(self, rows: Sequence[Row]) -> Raw:
        found = self.gather(rows, unpack)
        found.stamp = max(found.stamp, integer(rows[0][-1]) or 0)
        return found

    def change(self, name: str, change: Change) -> list[Statement]:
        (using, used), (stamped, stamp) = change.using, change.stamped
        condition, wanted = change.condition
        gone = set(change.remove)
        put = {entry: cell for entry, cell in change.put.items() if entry not in self._declared}
        notes = {entry: tags for entry, (_, tags) in change.put.items() if tags is not None}
        parts: list[tuple[str, Any]] = [("version = ?", change.left)]
        if change.expires is not None or change.before.expires is not None:
            parts.append(("expires = ?", change.deadline))
        if put:
            cells = pack({entry: value for entry, (value, _) in put.items()})
            parts.append(('"entries" = "entries" + ?', cells))
        if notes:
            parts.append(("tags = tags + ?", pack(notes)))
        for entry, column in self._declared.items():
            if entry in change.put or entry in gone:
                value = change.put[entry][0] if entry in change.put else None
                parts.append((f"{quoted(column)} = ?", value))
        statements = [
            Statement(
                f"UPDATE {name} {using} SET "  # noqa: S608
                f"{', '.join(text for text, _ in parts)} WHERE block = ?{condition}",
                [*used, *(value for _, value in parts), change.key, *wanted],
            )
        ]
        removed = [
            ('"entries" = "entries" - ?', [e for e in gone if e not in self._declared]),
            ("tags = tags - ?", self._stale_tags(change, gone, notes)),
        ]
        removed = [(text, names) for text, names in removed if names]
        if removed:
            statements.append(
                Statement(
                    f"UPDATE {name}{stamped} SET "  # noqa: S608
                    f"{', '.join(text for text, _ in removed)} WHERE block = ?",
                    [*stamp, *(pack_list(names) for _, names in removed), change.key],
                )
            )
        return statements

    def removal(self, name: str, before: Raw) -> list[Statement]:
        condition, wanted = asked(before)
        return [
            Statement(f"DELETE FROM {name} WHERE block = ?{condition}", [before.key, *wanted])  # noqa: S608
        ]

    @staticmethod
    def _stale_tags(change: Change, gone: set[bytes], notes: Mapping[bytes, bytes]) -> list[bytes]:
        """Tags that lie there, of entries that go or need none any more."""
        return [
            entry
            for entry, (_, tags) in change.before.fields.items()
            if tags is not None and (entry in gone or (entry in change.put and entry not in notes))
        ]


# ---------------------------------------------------------------- as the protocol has them


def pack(cells: Mapping[bytes, bytes]) -> bytes:
    """A map<text, text>."""
    parts = [struct.pack(">i", len(cells))]
    for name, value in cells.items():
        parts += (struct.pack(">i", len(name)), name, struct.pack(">i", len(value)), value)
    return b"".join(parts)


def pack_list(members: Sequence[bytes]) -> bytes:
    """A list<text> or set<text>."""
    parts = [struct.pack(">i", len(members))]
    for member in members:
        parts += (struct.pack(">i", len(member)), member)
    return b"".join(parts)


def unpack(data: bytes) -> dict[bytes, bytes]:
    """The members of a map<text, text>."""
    (count,) = struct.unpack_from(">i", data)
    found: list[bytes] = []
    at = 4
    for _ in range(2 * count):
        (size,) = struct.unpack_from(">i", data, at)
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return dict(zip(found[::2], found[1::2], strict=True))
