"""Aggregates as rows: what each column holds, what the side column adds, and back again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from migrator.errors import DoesNotFit
from migrator.model import value as v
from migrator.model.block import Block
from migrator.model.canonical import equal
from migrator.model.path import child, format_path, parse_path
from migrator.model.rules import CorruptBlock, Representation, assemble
from migrator.model.value import Record, Value, show
from migrator.stores.cassandra.columns import SCALARS, Marks, Unfit
from migrator.stores.cassandra.columns_nested import is_null, pieces
from migrator.stores.cassandra.table_shape import Column, Role, Shape
from migrator.stores.cassandra.table_spec import SIDE, Key
from migrator.stores.cassandra.table_wire import NOW, Values

# The parts of a key, and a partition key as a whole, take two bytes for their length.
MAX_KEY = 65_535
# Half a segment of the commit log: a larger mutation is refused.
MAX_ROW = 16 * 1024 * 1024 - 100_000
MAX_TTL = 20 * 365 * 24 * 3600

# How the deadline is named among the paths of a block.
EXPIRES = "(expires)"
AFTER_2038 = (
    "its deadline is after January 2038, which this server's cells can't count "
    "(storage_compatibility_mode is not NONE)"
)

Side = dict[str, Marks]


class Damaged(Exception):
    """A row that gives no aggregate; the text says why."""


@dataclass
class Row:
    """A block as it lies in a table: the bytes of each column that is set.

    ``more`` are the columns that only projections have.
    """

    id: Value
    values: dict[str, bytes]
    expires: int | None = None
    more: dict[str, bytes] = field(default_factory=dict)

    def key(self, key: Key) -> tuple[bytes, ...]:
        """The bytes of a primary key."""
        return tuple(self.column(name) for name in key.columns)

    def has(self, key: Key) -> bool:
        """Whether the block has a value for every part of a key."""
        return all(name in self.values or name in self.more for name in key.columns)

    def column(self, name: str) -> bytes:
        return self.values[name] if name in self.values else self.more[name]

    @property
    def size(self) -> int:
        """The bytes of all columns."""
        return sum(map(len, self.values.values()))


class Rows:
    """Turns blocks into rows and rows into blocks, for one location."""

    def __init__(
        self,
        shape: Shape,
        rules: Representation,
        where: str,
        latest_expiry: Callable[[], int] = lambda: 2**63,
    ) -> None:
        self.shape = shape
        self.rules = rules
        self.where = where
        self._latest_expiry = latest_expiry

    # ------------------------------------------------------------ to rows

    def row(self, block: Block) -> Row:
        """The row of a block. Raises DoesNotFit, naming the path."""
        try:
            record = assemble(block.entries)
            return self._row(block, record)
        except Unfit as error:
            raise self._unfit(str(error), block.id, error.path) from None
        except (CorruptBlock, TypeError) as error:
            raise self._unfit(str(error), block.id, "") from None

    def _unfit(self, reason: str, id: Value, path: str) -> DoesNotFit:
        return DoesNotFit(
            reason,
            key=id,
            path=path,
            where=self.where,
            hint="declare another type for the column, convert the field with an evolution, or "
            "keep what has no column in rest=",
        )

    def _row(self, block: Block, record: Record) -> Row:
        shape = self.shape
        side: Side = {}
        row = Row(block.id, self._id(block.id, record, side), block.expires)
        rest: Record = {}
        for name, value in record.items():
            column = shape.columns.get(name) if name in shape.fields else None
            if column is None:
                if shape.spec.rest is None:
                    raise Unfit("the table has no column for it", child("", name))
                rest[name] = value
            elif name not in row.values:
                self._set(column, value, row, side)
        if shape.spec.rest is not None and rest:
            self._set(shape.columns[shape.spec.rest], rest, row, side)
        if shape.spec.nulls:
            for name in shape.fields:
                if name not in record and name not in shape.id:
                    side.setdefault(name, {})[""] = "absent"
        self._derive(row, record)
        self._check_keys(row)
        if block.expires is not None:
            self._check_deadline(block.expires)
            keep_deadline(side, block.expires)
        self._keep(side, row)
        if row.size > MAX_ROW:
            raise Unfit(
                f"its row has {row.size:,} bytes, over the {MAX_ROW:,} that Cassandra takes"
            )
        return row

    def _check_deadline(self, expires: int) -> None:
        if expires - time.time() * 1000 > MAX_TTL * 1000:
            raise Unfit(
                "its deadline is more than 20 years away, the longest that Cassandra keeps",
                EXPIRES,
            )
        if expires > self._latest_expiry():
            raise Unfit(AFTER_2038, EXPIRES)
        static = [column.name for column in self.shape.static]
        if static:
            raise Unfit(
                f"it has a deadline, and its static columns {', '.join(static)} belong to other "
                "blocks as well",
                EXPIRES,
            )

    def _keep(self, side: Side, row: Row) -> None:
        """Write the side column where there is something to say."""
        if side and not self.shape.side:
            name = next(iter(side))
            raise Unfit(
                f"the table has no column {SIDE} to keep what its other columns can't say",
                child("", name) if name else "",
            )
        # A row of nothing but its key would have neither a stamp nor a deadline to be read.
        bare = not any(column.name in row.values for column in self.shape.regular)
        if self.shape.side and (side or bare):
            row.values[SIDE] = side_text(side)

    def _id(self, id: Value, record: Record, side: Side) -> dict[str, bytes]:
        shape = self.shape
        values, marks = self._key(id)
        if marks:
            side[""] = marks
        for name, part in zip(shape.id, self.parts(id), strict=True):
            if name not in shape.fields:
                continue
            if name not in record:
                side[name] = {"": "absent"}
            elif not equal(record[name], part):
                raise Unfit(
                    f"it is {show(record[name])}, the block key says {show(part)}; both have "
                    "one column",
                    child("", name),
                )
        return values

    def _key(self, id: Value) -> tuple[dict[str, bytes], Marks]:
        """The bytes of a block key's columns, and the marks by the number of the column.

        Raises Unfit for what the columns can't hold.
        """
        values: dict[str, bytes] = {}
        told: Marks = {}
        for i, (name, part) in enumerate(zip(self.shape.id, self.parts(id), strict=True)):
            column, marks = self.shape.columns[name], Marks()
            if part is None:
                raise Unfit(f"the key column {name} can't be null", child("", name))
            values[name] = column.codec.write(part, "", marks)
            if marks.keys() - {""}:
                raise Unfit(f"{show(part)} can't be a key", child("", name))
            if marks:
                told[f"[{i}]"] = marks[""]
        return values, told

    def parts(self, id: Value) -> list[Value]:
        """A block key as the values of its columns. Raises Unfit for another number of them."""
        count = len(self.shape.id)
        if count == 1:
            return [id]
        if type(id) is not list or len(id) != count:
            raise Unfit(f"{show(id)} is no key of {', '.join(self.shape.id)}")
        return id

    def key_of(self, id: Value) -> dict[str, bytes] | None:
        """The bytes of the columns that give a block key; None where they can't hold it."""
        try:
            return self._key(id)[0]
        except (Unfit, TypeError):
            return None

    def address(self, id: Value) -> tuple[bytes, ...] | None:
        """The primary key of a block whose key gives it; None where there is no such row."""
        values = self.key_of(id)
        return None if values is None else self.address_of(values)

    def address_of(self, values: Mapping[str, bytes]) -> tuple[bytes, ...]:
        """The primary key of a block, from the bytes of its block key."""
        held = dict(values)
        for name in self.shape.key.columns:
            made = self.shape.spec.derived.get(name)
            if made is not None and name not in held:
                value = made.value(self._bytes(held), {})
                held[name] = self.shape.columns[name].codec.write(value, "", {})
        return tuple(held[name] for name in self.shape.key.columns)

    def _bytes(self, values: Mapping[str, bytes]) -> bytes:
        """What a bucket of the block key is made of."""
        return b"".join(values[name] for name in self.shape.id)

    def _set(self, column: Column, value: Value, row: Row, side: Side) -> None:
        name = column.name
        marks: Marks = {}
        try:
            if value is None and column.role in (Role.PARTITION, Role.CLUSTERING):
                raise Unfit(f"the key column {name} can't be null")
            if value is None:
                if not self.shape.spec.nulls:
                    marks[""] = "null"
            else:
                data = column.codec.write(value, "", marks)
                if column.multicell and _is_empty(data):
                    # To CQL no element and no value are one.
                    marks[""] = "empty set" if type(value) is v.Set else "empty"
                else:
                    row.values[name] = data
        except Unfit as error:
            below = (name, *parse_path(error.path)) if error.path else (name,)
            raise Unfit(str(error), format_path(below)) from None
        if marks:
            side[name] = marks

    def _derive(self, row: Row, record: Record) -> None:
        for name, made in self.shape.spec.derived.items():
            if name not in row.values:
                value = made.value(self._bytes(row.values), record)
                row.values[name] = self.shape.columns[name].codec.write(value, "", {})
        for projection in self.shape.spec.projections:
            for name, made in projection.derived.items():
                if name in row.values or name in row.more or made.type is None:
                    continue
                # A block without the value is left out of the projection.
                if made.by_key or record.get(made.source or "") is not None:
                    value = made.value(self._bytes(row.values), record)
                    row.more[name] = SCALARS[made.type.name].write(value, "", {})

    def _check_keys(self, row: Row) -> None:
        _check_key(row, self.shape.key)
        for projection in self.shape.spec.projections:
            if row.has(projection.key):
                _check_key(row, projection.key)

    # ------------------------------------------------------------ to blocks

    def block(self, values: Values) -> Block:
        """The block of a row. Raises Damaged."""
        shape = self.shape
        try:
            side = side_of(values.get(SIDE))
            record: Record = {}
            id = self._id_parts(values, side)
            for name in shape.fields:
                marks = side.get(name, {})
                if name not in shape.id:
                    self._field(shape.columns[name], values.get(name), marks, record)
                elif marks.get("") != "absent":
                    record[name] = id[shape.id.index(name)]
            if shape.spec.rest is not None and values.get(shape.spec.rest) is not None:
                self._rest(values[shape.spec.rest], side.get(shape.spec.rest, {}), record)
            entries = self.rules.partition(record)
            return Block(
                self.id(values), entries, self._deadline(values, side), self._place(values)
            )
        except (ValueError, TypeError, RecursionError) as error:
            raise Damaged(f"{type(error).__name__}: {error}") from error

    def _place(self, values: Values) -> Value:
        """The primary key, where the block key does not give it."""
        return [values[name] for name in self.shape.key.columns] if self.shape.located else None

    def _deadline(self, values: Values, side: Side) -> int | None:
        kept = deadline(side)
        return self.remaining(values) if kept is None else kept

    def remaining(self, values: Values) -> int | None:
        """The deadline by what is left of the cells' lives.

        Raises ValueError where only a part of them ends, naming their columns.
        """
        lives: dict[str, list[int | None]] = {}
        for column in self.shape.regular:
            if values.get(column.name) is not None and ("ttl", column.name) in values:
                lives[column.name] = numbers(values["ttl", column.name], column)
        every = [life for cells in lives.values() for life in cells]
        ends = [life for life in every if life is not None]
        if not ends:
            return None
        if len(ends) < len(every) or max(ends) - min(ends) > 1:
            names = ", ".join(n for n, cells in lives.items() if set(cells) - {None})
            raise ValueError(f"cells of {names} expire by themselves, and a block ends as a whole")
        now = values.get(NOW)
        since = time.time() * 1000 if now is None else int.from_bytes(now, "big")
        return (int(since) // 1000 + max(ends)) * 1000

    def id(self, values: Mapping[str, bytes] | Values) -> Value:
        """The block key of a row. Raises ValueError where it can't be read."""
        return _joined(self._id_parts(values, side_of(values.get(SIDE))))

    def _id_parts(self, values: Mapping[str, bytes] | Values, side: Side) -> list[Value]:
        parts: list[Value] = []
        for i, name in enumerate(self.shape.id):
            data = values[name]
            if data is None:
                raise ValueError(f"the key column {name} is null")
            mark = side.get("", {}).get(f"[{i}]")
            marks = {} if mark is None else {"": mark}
            parts.append(self.shape.columns[name].codec.read(data, "", marks))
        return parts

    def _field(self, column: Column, data: bytes | None, marks: Marks, record: Record) -> None:
        mark = marks.get("")
        if data is not None:
            record[column.name] = column.codec.read(data, "", marks)
        elif column.multicell and mark == "empty set":
            record[column.name] = v.Set()
        elif column.multicell and mark == "empty":
            record[column.name] = column.codec.read(b"", "", marks)
        elif is_null(mark, self.shape.spec.nulls):
            record[column.name] = None

    def _rest(self, data: bytes | None, marks: Marks, record: Record) -> None:
        assert data is not None
        rest = self.shape.columns[self.shape.spec.rest or ""].codec.read(data, "", marks)
        if type(rest) is not dict:
            raise TypeError(f"the column {self.shape.spec.rest} holds no record")
        for name, value in rest.items():
            if name in self.shape.fields:
                raise ValueError(f"{name} stands in its own column and in the rest")
            record[name] = value


def _check_key(row: Row, key: Key) -> None:
    """Raise Unfit for a key that the server would refuse."""
    missing = [name for name in key.columns if name not in row.values and name not in row.more]
    if missing:
        raise Unfit("it is part of the table's key and has no value", child("", missing[0]))
    sizes = [len(row.column(name)) for name in key.partition]
    if len(sizes) == 1 and not sizes[0]:
        raise Unfit("a partition key can't be empty", child("", key.partition[0]))
    if sum(sizes) + (3 * len(sizes) if len(sizes) > 1 else 0) > MAX_KEY:
        raise Unfit(f"the partition key is over {MAX_KEY:,} bytes", child("", key.partition[0]))
    for name in key.clustering:
        if len(row.column(name)) > MAX_KEY:
            raise Unfit(f"the clustering key is over {MAX_KEY:,} bytes", child("", name))


def numbers(data: bytes | None, column: Column) -> list[int | None]:
    """A column's stamp or life, or those of each element of a collection."""
    if data is None or not column.multicell:
        return [None if data is None else int.from_bytes(data, "big", signed=True)]
    return [
        None if piece is None else int.from_bytes(piece, "big", signed=True)
        for piece in pieces(data, 4)
    ]


def _joined(parts: list[Value]) -> Value:
    """A block key of the values of its columns."""
    return parts[0] if len(parts) == 1 else parts


def _is_empty(data: bytes) -> bool:
    """Whether the bytes of a collection or of a type of records hold nothing."""
    return data == b"\0\0\0\0" or not data.strip(b"\xff")


def side_of(data: bytes | None) -> Side:
    """What a side column says; nothing where it is not ours."""
    if data is None:
        return {}
    try:
        side = json.loads(data)
    except ValueError:
        return {}
    if type(side) is not dict or not all(type(marks) is dict for marks in side.values()):
        return {}
    return side


def side_text(side: Side) -> bytes:
    """What lies in a side column."""
    return json.dumps(side, ensure_ascii=False, separators=(",", ":")).encode()


def keep_deadline(side: Side, expires: int) -> None:
    """Tell a deadline by the side column."""
    side.setdefault("", {})[""] = ["expires", str(expires)]


def deadline(side: Side) -> int | None:
    """The deadline that the side column keeps to the millisecond."""
    mark = side.get("", {}).get("")
    return int(mark[1]) if type(mark) is list and mark[0] == "expires" else None
