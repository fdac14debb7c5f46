"""Aggregates as rows: what each column holds, what the side column adds, and back again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from migrator.errors import DoesNotFit
from migrator.model import value as v
from migrator.model.block import Block
from migrator.model.canonical import equal
from migrator.model.ending import without_ended
from migrator.model.path import child, format_path, parse_path
from migrator.model.rules import CorruptBlock, Representation, assemble
from migrator.model.value import Record, Value, show
from migrator.stores.cassandra.columns import SCALARS, Marks, Unfit
from migrator.stores.cassandra.columns_nested import is_null
from migrator.stores.cassandra.table_lives import (
    Side,
    deadline,
    is_stamped,
    keep_deadline,
    keep_ends,
    keep_stamps,
    kept_ends,
    lives,
    side_of,
    side_text,
    written,
)
from migrator.stores.cassandra.table_shape import Column, Role, Shape
from migrator.stores.cassandra.table_spec import SIDE, Key
from migrator.stores.cassandra.table_wire import Values

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


class Damaged(Exception):
    """A row that gives no aggregate; the text says why."""


@dataclass
class Row:
    """A block as it lies in a table: the bytes of each column that is set.

    ``more`` are the columns that only projections have; ``ends`` the deadlines of single columns,
    in nanoseconds since 1970, and ``written`` the stamps that they are to have. ``block`` is what
    it was made of.
    """

    id: Value
    values: dict[str, bytes]
    expires: int | None = None
    more: dict[str, bytes] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    block: Block | None = None

    @property
    def apart(self) -> dict[tuple[int | None, int | None], list[str]]:
        """The columns that end before the row does or have a stamp of their own, by deadline in
        milliseconds and by stamp."""
        found: dict[tuple[int | None, int | None], list[str]] = {}
        for name in dict.fromkeys((*self.ends, *self.written)):
            moment = None if name not in self.ends else -(-self.ends[name] // 1_000_000)
            if moment is not None and self.expires is not None and moment >= self.expires:
                moment = None
            found.setdefault((moment, self.written.get(name)), []).append(name)
        found.pop((None, None), None)
        return found

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
        record, ends = self._ends(whole := record)
        record, written_ = self._written(whole, record)
        row = Row(block.id, self._id(block.id, record, side), block.expires)
        row.ends, row.written, row.block = ends, written_, block
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
        self._check_ends(row)
        self._check_written(row)
        keep_ends(side, ends)
        if shape.spec.deadlines is not None and (ends or block.expires is not None):
            keep_stamps(side, row.written)
        if block.expires is not None:
            self._check_deadline(block.expires)
            keep_deadline(side, block.expires)
        self._keep(side, row)
        if row.size > MAX_ROW:
            raise Unfit(
                f"its row has {row.size:,} bytes, over the {MAX_ROW:,} that Cassandra takes"
            )
        return row

    def unstamped(self, row: Row, but: Sequence[str] = ()) -> Row:
        """The same row, its cells stamped like others, ``but`` for some."""
        name, block = self.shape.spec.write_times, row.block
        if name is None or block is None or row.written.keys() <= {*but}:
            return row
        times: Record = {each: _wide(row.written[each]) for each in but}
        record = {**assemble(block.entries), name: times}
        return self.row(replace(block, entries={"": record}))

    def is_as_put(self, row: Row, values: Values | None) -> bool:
        """Whether what was read of a row is what was put, its write times included."""
        if values is None or row.block is None:
            return False
        try:
            there = assemble(self.block(values).entries)
        except Damaged:
            return False
        spec, now = self.shape.spec, time.time_ns()
        ending = {} if spec.deadlines is None else {spec.deadlines: ""}
        left, right = (
            {n: x for n, x in without_ended(record, ending, now).items() if n != spec.write_times}
            for record in (there, assemble(row.block.entries))
        )
        stamps = written(self.shape, values)
        as_stamped = all(stamps.get(n) == at for n, at in row.written.items() if n in right)
        return as_stamped and equal(left, right)

    def _cellwise(self, name: str, record: Record) -> Record:
        """The field that holds what is known of single cells. Raises Unfit for what is none."""
        held = record.get(name)
        if type(held) is not dict:
            why = "no record, by field" if name in record else "absent, and would come back empty"
            raise Unfit(f"it is {why}", child("", name))
        return held

    def _ends(self, record: Record) -> tuple[Record, dict[str, int]]:
        """The record without the deadlines of its fields, nor the fields that have ended; and
        those of the others. Raises Unfit for what is no deadline."""
        name = self.shape.spec.deadlines
        if name is None:
            return record, {}
        held, ends = self._cellwise(name, record), {}
        for field_, moment in held.items():
            if v.kind_of(moment) is not v.Kind.TIMESTAMP:
                raise Unfit("a deadline is a timestamp", format_path((name, field_)))
            ends[field_] = v.nanos_of(moment)
        now = time.time_ns()
        gone = {name, *(field_ for field_, at in ends.items() if at <= now)}
        return (
            {field_: value for field_, value in record.items() if field_ not in gone},
            {field_: at for field_, at in ends.items() if field_ not in gone},
        )

    def _written(self, whole: Record, record: Record) -> tuple[Record, dict[str, int]]:
        """A record without the write times of its fields; and those, but of what has ended of the
        ``whole``. Raises Unfit for what is none."""
        name = self.shape.spec.write_times
        if name is None:
            return record, {}
        held, stamps = self._cellwise(name, record), {}
        for field_, stamp in held.items():
            if not isinstance(stamp, int) or type(stamp) is bool or abs(stamp) >= 2**63:
                why = "a write time is a whole number of 64 bits, in microseconds since 1970"
                raise Unfit(why, format_path((name, field_)))
            if field_ in record or field_ not in whole:
                stamps[field_] = int(stamp)
        return {field_: x for field_, x in record.items() if field_ != name}, stamps

    def _check_written(self, row: Row) -> None:
        """Refuse write times of what is no cell of its own."""
        for name in row.written:
            path = format_path((self.shape.spec.write_times or "", name))
            if not self._is_cell(name, row):
                raise Unfit(f"{name} has no cell of its own that could be stamped", path)
            if not is_stamped(self.shape.columns[name]):
                raise Unfit(
                    f"{name} is a list that is not frozen: put twice with one stamp it would have "
                    "its elements twice",
                    path,
                )

    def _is_cell(self, name: str, row: Row) -> bool:
        column = self.shape.columns.get(name) if name in self.shape.fields else None
        return column is not None and column.role is Role.REGULAR and name in row.values

    def _check_ends(self, row: Row) -> None:
        """Refuse deadlines of what is no cell of its own, and those that no cell can have."""
        for name, at in row.ends.items():
            path = format_path((self.shape.spec.deadlines or "", name))
            if not self._is_cell(name, row):
                raise Unfit(f"{name} has no cell of its own that could end", path)
            if not self.shape.side:
                raise Unfit(f"the table has no column {SIDE} to keep a deadline exactly", path)
            self._check_moment(-(-at // 1_000_000), path)

    def _check_deadline(self, expires: int) -> None:
        self._check_moment(expires, EXPIRES)
        static = [column.name for column in self.shape.static]
        if static:
            raise Unfit(
                f"it has a deadline, and its static columns {', '.join(static)} belong to other "
                "blocks as well",
                EXPIRES,
            )

    def _check_moment(self, expires: int, path: str) -> None:
        if expires - time.time() * 1000 > MAX_TTL * 1000:
            raise Unfit(
                "its deadline is more than 20 years away, the longest that Cassandra keeps", path
            )
        if expires > self._latest_expiry():
            raise Unfit(AFTER_2038, path)

    def _keep(self, side: Side, row: Row) -> None:
        """Write the side column where there is something to say."""
        if side and not self.shape.side:
            name = next(iter(side))
            raise Unfit(
                f"the table has no column {SIDE} to keep what its other columns can't say",
                child("", name) if name else "",
            )
        # A row of nothing but its key would have neither a stamp nor a deadline to be read, and
        # one of nothing but cells with write times no stamp of what it removes.
        regular = (column.name for column in self.shape.regular)
        bare = not any(name in row.values and name not in row.written for name in regular)
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
                if column.multicell and _holds_nothing(data):
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
            expires = self._ending(values, side, record)
            entries = self.rules.partition(record)
            return Block(self.id(values), entries, expires, self._place(values))
        except (ValueError, TypeError, RecursionError) as error:
            raise Damaged(f"{type(error).__name__}: {error}") from error

    def _place(self, values: Values) -> Value:
        """The primary key, where the block key does not give it."""
        return [values[name] for name in self.shape.key.columns] if self.shape.located else None

    def _ending(self, values: Values, side: Side, record: Record) -> int | None:
        """The deadline of the row; those of fields become one, and what has ended is absent."""
        found = lives(self.shape, values, deadline(side), kept_ends(side))
        if (name := self.shape.spec.deadlines) is not None:
            now = time.time_ns()
            record[name] = {n: v.instant(at) for n, at in found.ends.items() if at > now}
            for ended in (n for n, at in found.ends.items() if at <= now):
                record.pop(ended, None)
        if (name := self.shape.spec.write_times) is not None:
            stamps = written(self.shape, values)
            record[name] = {n: _wide(at) for n, at in stamps.items() if n in record}
        return found.expires

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


def _wide(number: int) -> Value:
    """A number as one of 64 bits."""
    return v.Int64(number) if -(2**31) <= number < 2**31 else number


def _joined(parts: list[Value]) -> Value:
    """A block key of the values of its columns."""
    return parts[0] if len(parts) == 1 else parts


def is_empty(column: Column, value: Value) -> bool:
    """Whether a list, set or record is nothing to a column whose elements are cells."""
    if not value:
        return True
    # A record of a declared type is nothing as well where none of its fields has a value.
    if type(value) is not dict or any(x is not None for x in value.values()):
        return False
    try:
        return _holds_nothing(column.codec.write(value, "", {}))
    except Unfit:
        return False


def _holds_nothing(data: bytes) -> bool:
    """Whether the bytes of a collection or of a type of records hold nothing."""
    return data == b"\0\0\0\0" or not data.strip(b"\xff")
