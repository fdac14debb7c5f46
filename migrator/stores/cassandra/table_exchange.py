"""Changing rows of the layout ``table`` on condition, by lightweight transactions (R12, ADR 0031).

The version of a block lies in the side column, beside what that tells of the others. A table that
has none, or a block that lies in more than its row, is in no single transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from migrator.errors import DamagedBlock, DoesNotFit, Refused
from migrator.exchange import Change, made_of
from migrator.model.block import Block, Patch
from migrator.model.canonical import encode
from migrator.model.value import Value, show
from migrator.stores.cassandra.columns_nested import quoted
from migrator.stores.cassandra.seen import Pristine, ended
from migrator.stores.cassandra.table_lives import Side, keep_deadline, latest, side_of, side_text
from migrator.stores.cassandra.table_read import TableReader, all_columns
from migrator.stores.cassandra.table_rows import Row, Rows
from migrator.stores.cassandra.table_shape import Shape
from migrator.stores.cassandra.table_spec import SIDE
from migrator.stores.cassandra.table_wire import UNSET, Name, Statement, Values, Wire
from migrator.stores.cassandra.table_write import PrimaryKey, time_to_live
from migrator.stores.cassandra.transactions import ahead, exchange, replace

VERSION = "version"


def why_not(shape: Shape) -> tuple[str, str] | None:
    """Why blocks of a table can't be changed on condition, and what to do; None where they can."""
    whole = "put or delete whole aggregates without expected, or "
    if shape.spec.projections:
        names = ", ".join(projection.name for projection in shape.spec.projections)
        return (
            f"its blocks lie in the projection {names} as well, in other partitions, and a "
            "transaction of Cassandra has one",
            whole + "leave the projections out",
        )
    if shape.located:
        return (
            "its locator lies in another partition than the row, and a transaction of Cassandra "
            "has one",
            whole + "let the block key say where a block lies: leave id= out",
        )
    if shape.static:
        return (
            f"its static column {', '.join(c.name for c in shape.static)} belongs to other blocks "
            "as well",
            whole + "leave static= out",
        )
    for option, name in shape.spec.cellwise.items():
        return (
            f"what is known of its single cells ({option}={name!r}) is of one write with all cells",
            f"{whole}leave {option}= out",
        )
    if not shape.side:
        return (
            f"the table has no column {SIDE} for the version of a block",
            f"{whole}stop all gateways,  ALTER TABLE {shape.spec.table} ADD {quoted(SIDE)} text,  "
            "and start them anew",
        )
    return None


class TableExchanger:
    """Exchanges the blocks of one table."""

    def __init__(
        self,
        wire: Wire,
        shape: Shape,
        rows: Rows,
        table: str,
        decode: Callable[[Value, Values], Block],
        where: str,
        pristine: Pristine,
    ) -> None:
        self.wire = wire
        self.shape = shape
        self.rows = rows
        self.table = table
        self.where = where
        self.names: list[Name] = [*all_columns(shape), *_stamps(shape)]
        self.condition = " AND ".join(f"{quoted(name)} = ?" for name in shape.key.columns)
        self.reader = TableReader(wire, shape, table)
        self.serial = TableReader(wire.serially(), shape, table)
        self._decode = decode
        self._pristine = pristine

    def exchange(self, id: Value, held: Block | None, change: Change) -> bool:
        """Change a block that still is ``held``. Raises Refused where no transaction holds it."""
        self._begin()
        return exchange(lambda: self._look(id), id, held, change, self.where)

    def replace(self, id: Value, change: Block | None) -> None:
        """Put a whole block, or remove it, also where what lies there can't be read."""
        self._begin()
        replace(lambda: self._look(id, reads=False), id, change, self.where)

    def _begin(self) -> None:
        if refusal := why_not(self.shape):
            what, hint = refusal
            raise Refused(
                f"a block can't be changed on condition here: {what}", where=self.where, hint=hint
            )
        self._pristine.holds = False  # it is removed by another clock than plain writes have

    def _look(self, id: Value, *, reads: bool = True) -> _Lying:
        key = self.rows.address(id)
        (values,) = self.reader.by_key([key], self.names)
        if values is None:
            return _Lying(self, id, key, {}, None, None)
        timed = [values]
        self.reader.timed(timed)  # as it is read, so that it compares equal
        # What was read anew may be of a later writer: it is claimed, which tells.
        stamps = values if timed[0].get(SIDE) == values.get(SIDE) else {}
        values = {**timed[0], **{name: stamps.get(name) for name in _stamps(self.shape)}}
        version = version_of(values.get(SIDE))
        try:
            block = self._decode(id, values)
        except DamagedBlock:
            if reads:
                raise
            return _Lying(self, id, key, values, None, version, damaged=True)
        other = None if encode(block.id) == encode(id) else block.id
        there = None if other is not None else block
        return _Lying(self, id, key, values, there, version, other)

    def later(self, values: Values) -> bool:
        """Whether some cell was stamped later than the version, or nothing tells."""
        mine = latest(values[_stamp(SIDE)], self.shape.columns[SIDE])
        others = (
            latest(values[_stamp(column.name)], column)
            for column in self.shape.regular
            if column.name != SIDE
        )
        return mine is None or any(stamp is not None and stamp > mine for stamp in others)


@dataclass
class _Lying:
    """A row as it lies there, empty where there is none; ``other`` is a key that it shares."""

    of: TableExchanger
    id: Value
    key: PrimaryKey | None
    values: Values
    block: Block | None
    known: int | None
    other: Value = None
    damaged: bool = False

    def __post_init__(self) -> None:
        self._read = self.known

    @property
    def there(self) -> bool:
        # What has ended lies there, and is read, until the server sweeps it.
        lasting = self.block is not None and not ended(self.block.expires)
        return lasting or self.damaged

    @property
    def drawn(self) -> bool:
        return self.known is not None and not self.of.later(self.values)

    def becomes(self, change: Change) -> _Becoming:
        of = self.of
        if isinstance(change, Patch):
            change = made_of(self.block or Block(self.id, {}), change)
        if change is None or ended(change.expires):
            return _Becoming(self, None)
        if self.other is not None:
            raise DoesNotFit(
                f"{show(self.id)} and {show(self.other)} have the same key here",
                key=self.id, where=of.where, hint="change one of the two keys",
            )  # fmt: skip
        return _Becoming(self, of.rows.row(change))

    def side(self, version: int | None) -> bytes | None:
        """The side column as it lies there under a version."""
        data = self.values.get(SIDE)
        if version is None or version == self._read:
            return data
        expires = None if self.block is None else self.block.expires
        return under(version, side_of(data), expires)

    def where(self, version: int | None) -> tuple[str, list[Any]]:
        """The row, on condition that it is as it was read."""
        assert self.key is not None
        text, asked = self.of.condition, [*self.key, self.side(version)]
        return f"WHERE {text} IF {quoted(SIDE)} = ?", asked

    def turn(self, old: int | None, new: int) -> bool:
        expires = None if self.block is None else self.block.expires
        condition, asked = self.where(old)
        if self.side(old) is None:
            # Of a row that somebody removed meanwhile nothing may be left by this.
            held = [
                (column.multicell, len(data), column.name, data)
                for column in self.of.shape.regular
                if (data := self.values.get(column.name)) is not None
            ]
            if not held:
                raise Refused(
                    f"{show(self.id)}: its row has nothing but its key, so that nobody can tell it "
                    "from one that was removed",
                    where=self.of.where,
                    hint=f"set its column {SIDE} to '{{}}', or remove the row",
                )
            _, _, name, data = min(held)
            condition += f" AND {quoted(name)} = ?"
            asked.append(data)
        statement = Statement(
            f"UPDATE {self.of.table} USING TTL ? SET {quoted(SIDE)} = ? {condition}",  # noqa: S608
            [time_to_live(expires), under(new, side_of(self.values.get(SIDE)), expires), *asked],
        )
        return self.of.wire.transact(self.id, [statement])

    def version(self) -> int | None:
        names: list[Name] = [*self.of.shape.key.columns, SIDE, *_stamps(self.of.shape)]
        (found,) = self.of.serial.by_key([self.key], names)
        version = None if found is None else version_of(found[SIDE])
        if found is not None and version is not None and self.of.later(found):
            raise ahead(self.of.where)
        return version


class _Becoming:
    """A row in the place of what lies there; None for its removal."""

    def __init__(self, lying: _Lying, row: Row | None) -> None:
        self._lying = lying
        self._of = lying.of
        self._row = row
        self._found = lying.values

    @property
    def gone(self) -> bool:
        return self._row is None

    @property
    def expires(self) -> int | None:
        return None if self._row is None else self._row.expires

    def send(self, new: int) -> bool:
        lying, of = self._lying, self._of
        if self._row is None:
            condition, asked = lying.where(lying.known)
            statements = [Statement(f"DELETE FROM {of.table} {condition}", asked)]  # noqa: S608
        elif lying.values:
            statements = self._change(lying.values, lying.where(lying.known), new)
        else:
            statements = self._insertion(new)
        return of.wire.transact(lying.id, statements)

    def shows(self, new: int) -> bool:
        assert self._row is not None
        (found,) = self._of.reader.by_key([self._lying.key], self._of.names)
        self._found = found or {}
        if found is None:
            return False
        version = version_of(found.get(SIDE))
        if version not in (None, self._lying.known, new):
            return True
        return version == new and all(found.get(name) is not None for name in self._row.values)

    def again(self, new: int) -> None:
        if not self._found:
            statements = self._insertion(new)
        else:
            condition, asked = self._lying.where(None)
            asked[-1] = self._found.get(SIDE)
            statements = self._change(self._found, (condition, asked), new)
        self._of.wire.transact(self._lying.id, statements)

    def _side(self, new: int) -> bytes:
        assert self._row is not None
        return under(new, side_of(self._row.values.get(SIDE)), self._row.expires)

    def _change(self, held: Values, where: tuple[str, list[Any]], new: int) -> list[Statement]:
        assert self._row is not None
        condition, asked = where
        ttl = time_to_live(self._row.expires)
        head = Statement(
            f"UPDATE {self._of.table} USING TTL ? SET {quoted(SIDE)} = ? {condition}",  # noqa: S608
            [ttl, self._side(new), *asked],
        )
        # A row of its own, so that it ends with its cells.
        rest = {name: x for name, x in self._cells(held).items() if name != SIDE}
        return [head, self._insert(rest, "USING TTL ?", ttl)]

    def _insertion(self, new: int) -> list[Statement]:
        assert self._row is not None
        cells = {**self._row.values, SIDE: self._side(new)}
        return [self._insert(cells, "IF NOT EXISTS USING TTL ?", time_to_live(self.expires))]

    def _insert(self, cells: dict[str, Any], how: str, ttl: bytes) -> Statement:
        columns = list(self._of.shape.columns)
        names = ", ".join(map(quoted, columns))
        marks = ", ".join("?" for _ in columns)
        return Statement(
            f"INSERT INTO {self._of.table} ({names}) VALUES ({marks}) {how}",  # noqa: S608
            [*(cells.get(name, UNSET) for name in columns), ttl],
        )

    def _cells(self, held: Values) -> dict[str, Any]:
        """What differs from what is held, and all of it where the deadline does."""
        assert self._row is not None
        same = self._lying.block is not None and self._lying.block.expires == self._row.expires
        cells: dict[str, Any] = {}
        for name in self._of.shape.columns:
            new, old = self._row.values.get(name), held.get(name)
            if name in self._of.shape.key.columns or new != old or (new is not None and not same):
                cells[name] = new if new is not None or old is not None else UNSET
        return cells


def under(version: int, side: Side, expires: int | None) -> bytes:
    """A side column that tells a version as well."""
    told = {**side, "": {**side.get("", {}), VERSION: str(version)}}
    if expires is not None:
        keep_deadline(told, expires)
    return side_text(told)


def version_of(data: bytes | None) -> int | None:
    """The version that a side column tells; None where no transaction wrote it last."""
    told = side_of(data).get("", {}).get(VERSION)
    return int(told) if type(told) is str else None


def _stamp(name: str) -> Name:
    return "writetime", name


def _stamps(shape: Shape) -> list[Name]:
    return [_stamp(column.name) for column in shape.regular]
