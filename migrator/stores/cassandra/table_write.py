"""Writing blocks of the layout ``table``: each is a row, with what follows from it elsewhere.

A block that lies in one table is one statement. Where a locator or projections belong to it, all
its statements are one logged batch; a block too large for a batch is written in an order that a
second run can mend: the locator, or the full row, goes on telling of the old state until all
else is there.

Every write is stamped later than what it replaces (R10), which is read first; so is which
columns a row holds, since only those need a tombstone where the block no longer has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap

from migrator.errors import DoesNotFit, Terminal
from migrator.model.block import Address, Block, Patch
from migrator.model.canonical import equal
from migrator.model.value import Value, show
from migrator.stores.cassandra.columns_nested import quoted
from migrator.stores.cassandra.locator import Locator
from migrator.stores.cassandra.projections import Projected, delete, insert
from migrator.stores.cassandra.seen import Pristine, ended, lasts, until_gone, until_seen
from migrator.stores.cassandra.table_lives import latest, side_text
from migrator.stores.cassandra.table_read import TableReader, all_columns
from migrator.stores.cassandra.table_rows import Damaged, Row, Rows
from migrator.stores.cassandra.table_shape import Shape
from migrator.stores.cassandra.table_spec import SIDE
from migrator.stores.cassandra.table_wire import UNSET, Name, Statement, Unit, Values, Wire

# Cassandra refuses a batch of over 50 KiB, by its default settings.
BATCH_BYTES = 40_000

PrimaryKey = tuple[bytes, ...]


@dataclass
class Old:
    """What lies where a block is to be written: its place, latest stamp, and columns held.

    ``row`` is the block that lies there, read only where something follows from it.
    """

    key: PrimaryKey | None = None
    stamp: int = 0
    held: frozenset[str] = frozenset()
    row: Row | None = None
    values: Values = field(default_factory=dict)


# A row that was removed: the key of its block, what lay there, and where.
_Removed = tuple[Value, Old, PrimaryKey]


class TableWriter:
    """Writes and removes the rows of one location."""

    def __init__(
        self,
        wire: Wire,
        shape: Shape,
        rows: Rows,
        keyspace: str,
        table: str,
        locator: Locator | None,
        now: Callable[[], int],
        where: str,
        pristine: Pristine,
    ) -> None:
        self._wire = wire
        self._shape = shape
        self._rows = rows
        self._table = table
        self._locator = locator
        self._now = now
        self._where = where
        self._pristine = pristine
        self._reader = TableReader(wire, shape, table)
        self._columns = list(shape.columns)
        self._projected = [Projected(shape, p, keyspace) for p in shape.spec.projections]
        self._static = [column.name for column in shape.static]

    # ------------------------------------------------------------ whole blocks

    def write(self, blocks: Sequence[Block]) -> int:
        """Put whole blocks; the bytes sent. Raises DoesNotFit before anything is written."""
        by_id: dict[PrimaryKey, Row] = {}
        for block in blocks:
            row = self._rows.row(block)
            other = by_id.setdefault(self._id(row), row)
            if not equal(other.id, row.id):
                raise DoesNotFit(
                    f"{show(row.id)} and {show(other.id)} have the same key here",
                    key=row.id,
                    where=self._where,
                    hint="change one of the two keys in the source",
                )
            by_id[self._id(row)] = row
        rows = list(by_id.values())
        self._check_static(rows)
        old = self.old([self._id(row) for row in rows])
        return self._put(list(zip(rows, old, strict=True)))

    def _put(self, pairs: Sequence[tuple[Row, Old]]) -> int:
        writes: list[Sequence[Unit]] = []
        gone: list[tuple[Value, Old]] = []
        new: list[tuple[Row, Old]] = []
        for row, old in pairs:
            if ended(row.expires):
                gone.append((row.id, old))  # a deadline already reached is a delete (R10)
                continue
            writes.append(self._putting(row, old))
            if old.key != row.key(self._shape.key) or not old.held or self._gains(row, old):
                new.append((row, old))
        self._send(writes)
        self._remove(gone)
        if not self._pristine.holds:
            until_seen(new, self._hidden, self._put_later, self._where)
        self._see([row for row, _ in pairs if row.written])
        return sum(s.size for stages in writes for stage in stages for s in stage.first)

    def _see(self, stamped: Sequence[Row]) -> None:
        """Look for rows that were put with the write times of their cells, and put what does not
        lie there like that once more, stamped as ever (R10): some cell or tombstone is later."""
        if not stamped:
            return
        keys = [row.key(self._shape.key) for row in stamped]
        found = self._reader.by_key(keys, all_columns(self._shape))
        hidden = [
            self._rows.unstamped(row)
            for row, values in zip(stamped, found, strict=True)
            if not ended(row.expires) and not self._rows.is_as_put(row, values)
        ]
        if hidden:
            old = self.old([self._id(row) for row in hidden])
            self._put(list(zip(hidden, old, strict=True)))

    def _gains(self, row: Row, old: Old) -> bool:
        """Whether a column is put where its delete may lie, and nothing tells the stamp of that:
        in a table with a side column each change leaves its own there (ADR 0030)."""
        names = row.values.keys() - old.held
        return not self._shape.side and not all(map(self._is_key, names))

    def _hidden(self, put: Sequence[tuple[Row, Old]]) -> list[tuple[Row, Old]]:
        """Those of some blocks that are not there though they were put, and not to end soon."""
        lasting = [pair for pair in put if lasts(pair[0].expires)]
        there = list(map(self._shows, lasting, self._lying([pair[0] for pair in lasting])))
        if self._locator is not None:
            located = self._locator.find([self._id(row) for row, _ in lasting])
            there = [
                is_there and at is not None for is_there, at in zip(there, located, strict=True)
            ]
        return [pair for pair, is_there in zip(lasting, there, strict=True) if not is_there]

    def _lying(self, rows: Sequence[Row]) -> Iterable[Values | None]:
        asked: list[Name] = list(self._shape.key.columns)
        if not self._shape.side:
            asked += [x.name for x in (*self._shape.regular, *self._shape.static)]
            asked += [("writetime", x.name) for x in self._shape.regular]
        return self._reader.by_key([row.key(self._shape.key) for row in rows], asked)

    def _shows(self, put: tuple[Row, Old], found: Values | None) -> bool:
        """Whether what lies in the place of a row is what was put, or was written since."""
        row, old = put
        if found is None or self._shape.side:
            return found is not None
        missing = any(found.get(name) is None for name in row.values)
        return not missing or self._stamp_of(found) > old.stamp

    def _stamp_of(self, found: Values) -> int:
        """The latest stamp that can be read of a row's own columns; 0 where none can."""
        told = (latest(found["writetime", x.name], x) for x in self._shape.regular)
        return max((stamp for stamp in told if stamp is not None), default=0)

    def _put_later(self, put: Sequence[tuple[Row, Old]], later: int) -> None:
        for _, old in put:
            old.stamp += later
        self._send([self._putting(*pair) for pair in put])

    def _putting(self, row: Row, old: Old) -> list[Unit]:
        """The units that put a row, to be carried out one after another."""

        def unit(number: int, stage: Sequence[Statement]) -> Unit:
            return Unit(row.id, stage, lambda: self._stages(row, old)[number])

        return list(starmap(unit, enumerate(self._stages(row, old))))

    def _send(self, writes: Sequence[Sequence[Unit]]) -> None:
        """Carry out what has one stage at once, the others stage by stage."""
        self._wire.run(stages[0] for stages in writes if len(stages) == 1)
        for stages in writes:
            if len(stages) > 1:
                for stage in stages:
                    self._wire.run([stage])

    def _id(self, row: Row) -> PrimaryKey:
        return tuple(row.values[name] for name in self._shape.id)

    def _stages(self, row: Row, old: Old) -> list[list[Statement]]:
        """The statements that put a row: one stage is one unit, several come one after another."""
        stamp, ttl = _signed(self._stamp(old)), time_to_live(row.expires)
        key = row.key(self._shape.key)
        moved = old.key is not None and old.key != key
        held = frozenset() if moved else old.held
        apart = row.apart
        later = {name for names in apart.values() for name in names}
        values = [
            UNSET if name in later else row.values.get(name, None if name in held else UNSET)
            for name in self._columns
        ]
        # All of one row, and so one mutation, however many statements.
        full = [insert(self._table, self._columns, values, stamp, ttl)]
        for (moment, at), names in apart.items():
            written_ = stamp if at is None else _signed(at)
            life = ttl if moment is None else time_to_live(moment)
            full.append(update(self._table, self._shape, row, names, written_, life))
        beside = [
            change
            for projected in self._projected
            for change in projected.changes(row, old.row, old.held, stamp, ttl)
        ]
        turn = [] if self._locator is None else [self._locator.set(key, stamp, ttl)]
        if moved and old.key is not None:
            turn.append(delete(self._table, self._shape.key.columns, old.key, stamp))
            self._pristine.holds = False
        together = [*beside, *full, *turn]
        if together == full or sum(s.size for s in together) <= BATCH_BYTES:
            return [together]
        return [*([change] for change in beside), full, *([turn] if turn else [])]

    def _stamp(self, old: Old) -> int:
        """A stamp later than what lies there, and than any that was given for it before."""
        old.stamp = max(self._now(), old.stamp + 1)
        return old.stamp

    # ------------------------------------------------------------ what lies there

    def old(self, ids: Sequence[PrimaryKey]) -> list[Old]:
        """What lies under some block keys."""
        found: list[Old] = []
        if self._locator is None:
            for id in ids:
                values = dict(zip(self._shape.id, id, strict=True))
                key = self._rows.address_of(values)
                found.append(Old(key))
        else:
            for at in self._locator.find(ids):
                found.append(Old() if at is None else Old(at.key, at.stamp))
        self._look(found)
        return found

    def _look(self, olds: Sequence[Old], whole: bool = False) -> None:
        """Fill in what lies at the places; a place without a row is none."""
        cells = [column.name for column in (*self._shape.regular, *self._shape.static)]
        names: list[Name] = [("writetime", name) for name in cells]
        whole = whole or bool(self._projected)
        names += all_columns(self._shape) if whole else self._shape.key.columns
        found = self._reader.by_key([old.key for old in olds], list(dict.fromkeys(names)))
        for old, values in zip(olds, found, strict=True):
            if values is None:
                old.key = None if self._locator is None else old.key
                continue
            stamps = {
                name: latest(values["writetime", name], self._shape.columns[name]) for name in cells
            }
            old.held = frozenset(n for n, stamp in stamps.items() if stamp is not None)
            old.stamp = max([old.stamp, *(s for s in stamps.values() if s is not None)])
            if whole:
                old.values = values
                old.row = self._row_of(values)

    def _row_of(self, values: Values) -> Row:
        try:
            return self._rows.row(self._rows.block(values))
        except Damaged as error:
            raise Terminal(
                f"what lies in the place of a block can't be read: {error}",
                where=self._where,
                hint="mend or remove that row with the application that wrote it",
            ) from None

    # ------------------------------------------------------------ single entries

    def patch(self, patches: Sequence[Patch]) -> None:
        """Set and remove entries. Raises Terminal for a block that is not there."""
        for patch in patches:
            self._patch(patch)

    def _patch(self, patch: Patch) -> None:
        values = self._rows.key_of(patch.id)
        old = Old()
        if values is not None:
            id = tuple(values[name] for name in self._shape.id)
            if self._locator is None:
                old = Old(self._rows.address_of(values))
            else:
                (at,) = self._locator.find([id])
                old = Old() if at is None else Old(at.key, at.stamp)
            self._look([old], whole=True)
        if not old.values:
            raise Terminal(
                f"there is no block {show(patch.id)}",
                where=self._where,
                hint="put the whole block first",
            )
        timed = [old.values]
        self._reader.timed(timed)
        before = self._rows.block(timed[0])
        entries = {**before.entries, **patch.set}
        for path in patch.unset:
            entries.pop(path, None)
        row = self._rows.row(Block(patch.id, entries, before.expires))
        row = self._rows.unstamped(
            row, [name for name in row.written if row.values[name] == old.values.get(name)]
        )
        self._check_static([row])
        alone = not self._projected and not self._shape.spec.cellwise
        if row.key(self._shape.key) == old.key and alone:
            self._update(row, old)
        else:
            self._put([(row, old)])

    def _update(self, row: Row, old: Old) -> None:
        """Write those columns alone that differ."""
        differ = [
            name
            for name in self._columns
            if row.values.get(name) != old.values.get(name) and not self._is_key(name)
        ]
        if not differ:
            return
        cells = {name: row.values.get(name) for name in (*self._shape.key.columns, *differ)}
        if self._shape.side and None in cells.values():
            # What is removed leaves no stamp: this one is there to be read (ADR 0030).
            cells[SIDE] = row.values.get(SIDE) or side_text({})

        def change() -> list[Statement]:
            stamp, ttl = _signed(self._stamp(old)), time_to_live(row.expires)
            values = [cells.get(name, UNSET) for name in self._columns]
            return [insert(self._table, self._columns, values, stamp, ttl)]

        self._wire.run([Unit(row.id, change(), change)])
        if not self._pristine.holds and self._gains(row, old):
            until_seen([(row, old)], self._hidden, self._put_later, self._where)

    def _is_key(self, name: str) -> bool:
        return name in self._shape.key.columns

    # ------------------------------------------------------------ removal

    def delete(self, addresses: Sequence[Address]) -> None:
        """Remove blocks with all that follows from them."""
        ids: dict[PrimaryKey, Address] = {}
        for address in addresses:
            values = self._rows.key_of(address.id)
            if values is not None:
                ids[tuple(values[name] for name in self._shape.id)] = address
        named = list(zip(ids.values(), self.old(list(ids)), strict=True))
        strays = [
            (address, Old(key))
            for address, old in named
            if (key := self._place(address.place)) is not None and key != old.key
        ]
        self._look([old for _, old in strays])
        self._remove([(address.id, old) for address, old in (*named, *strays)])

    def _place(self, place: Value) -> PrimaryKey | None:
        """The primary key that an address names, where the block key does not give it."""
        if self._locator is None or type(place) is not list:
            return None
        parts = tuple(part for part in place if type(part) is bytes)
        return parts if len(parts) == len(place) == len(self._shape.key.columns) else None

    def _remove(self, olds: Sequence[tuple[Value, Old]]) -> None:
        there = [(id, old, old.key) for id, old in olds if old.key is not None]
        if there:
            self._pristine.holds = False
        self._wire.run(self._removing(*each) for each in there)
        # The stamp of a row itself can't be read, and may be later than those of its columns.
        unsure = [each for each in there if not (self._shape.side and each[1].held)]
        until_gone(unsure, self._staying, self._remove_later, self._where)
        if self._static:
            self._sweep([key for _, _, key in there])

    def _staying(self, removed: Sequence[_Removed]) -> list[_Removed]:
        """Those of some rows that are there though they were removed, and not written since."""
        stamps: list[Name] = [("writetime", column.name) for column in self._shape.regular]
        names = [*self._shape.key.columns, *stamps]
        found = self._reader.by_key([key for _, _, key in removed], names)
        return [
            each
            for each, values in zip(removed, found, strict=True)
            if values is not None and self._stamp_of(values) <= each[1].stamp
        ]

    def _remove_later(self, removed: Sequence[_Removed], later: int) -> None:
        for _, old, _ in removed:
            old.stamp += later
        self._wire.run(self._removing(*each) for each in removed)

    def _removing(self, id: Value, old: Old, key: PrimaryKey) -> Unit:
        def made() -> list[Statement]:
            stamp = _signed(self._stamp(old))
            unit = [delete(self._table, self._shape.key.columns, key, stamp)]
            for projected in self._projected:
                unit += projected.changes(None, old.row, (), stamp, time_to_live(None))
            if self._locator is not None:
                unit.append(self._locator.remove(key, stamp))
            return unit

        return Unit(id, made(), made)

    def _sweep(self, keys: Iterable[PrimaryKey]) -> None:
        """Remove the static columns of partitions that have no row any more."""
        count = len(self._shape.key.partition)
        columns = self._shape.static
        stamps: list[Name] = [("writetime", column.name) for column in columns]
        for partition in dict.fromkeys(key[:count] for key in keys):
            found = self._reader.partition(partition, [*self._shape.key.columns, *stamps], 1)
            if found and not self._reader.is_row(found[0]):
                written = map(latest, (found[0][name] for name in stamps), columns)
                stamp = max([self._now(), *(1 + (at or 0) for at in written)])
                where, names = self._shape.key.partition, tuple(self._static)
                # Nothing is put here: sent again as it was, it does the same.
                gone = [_delete_columns(self._table, names, where, partition, stamp)]
                self._wire.run([Unit(None, gone, gone.copy)])

    # ------------------------------------------------------------ static columns

    def _check_static(self, rows: Sequence[Row]) -> None:
        """Refuse a block whose static columns would change those of others in its partition."""
        if not self._static:
            return
        count = len(self._shape.key.partition)
        by_partition: dict[PrimaryKey, list[Row]] = {}
        for row in rows:
            by_partition.setdefault(row.key(self._shape.key)[:count], []).append(row)
        for partition, here in by_partition.items():
            first = self._statics(here[0].values)
            for row in here[1:]:
                if self._statics(row.values) != first:
                    raise self._shared(row, here[0].id)
            ours = {row.key(self._shape.key) for row in here}
            names = [*self._shape.key.columns, *self._static]
            for values in self._reader.partition(partition, names, len(ours) + 1):
                key = tuple(values[name] or b"" for name in self._shape.key.columns)
                other = self._reader.is_row(values) and key not in ours
                if other and self._statics(values) != first:
                    raise self._shared(here[0], self._rows.id(values))

    def _statics(self, values: Mapping[str, bytes] | Values) -> list[bytes | None]:
        return [values.get(name) for name in self._static]

    def _shared(self, row: Row, other: Value) -> DoesNotFit:
        return DoesNotFit(
            f"its static columns differ from those of {show(other)}, which lies in the same "
            "partition",
            key=row.id,
            path=self._static[0],
            where=self._where,
            hint="a static column has one value for all blocks of a partition; leave it out of "
            "static=",
        )


def _signed(stamp: int) -> bytes:
    return stamp.to_bytes(8, "big", signed=True)


def time_to_live(expires: int | None) -> bytes:
    """Seconds to live, rounded up; 0 for ever, whatever the table's default."""
    if expires is None:
        return bytes(4)
    left = -(-(expires - int(time.time() * 1000)) // 1000)
    return max(1, left).to_bytes(4, "big")


def update(
    table: str, shape: Shape, row: Row, names: Sequence[str], stamp: bytes, ttl: bytes
) -> Statement:
    """Some columns of a row put with a stamp and a time to live."""
    set_ = ", ".join(f"{quoted(name)} = ?" for name in names)
    where = " AND ".join(f"{quoted(name)} = ?" for name in shape.key.columns)
    return Statement(
        f"UPDATE {table} USING TIMESTAMP ? AND TTL ? SET {set_} WHERE {where}",  # noqa: S608
        [stamp, ttl, *(row.values[name] for name in names), *row.key(shape.key)],
    )


def _delete_columns(
    table: str,
    names: tuple[str, ...],
    partition: tuple[str, ...],
    key: PrimaryKey,
    stamp: int,
) -> Statement:
    where = " AND ".join(f"{quoted(name)} = ?" for name in partition)
    return Statement(
        f"DELETE {', '.join(map(quoted, names))} FROM {table} USING TIMESTAMP ? WHERE {where}",
        [_signed(stamp), *key],
    )
