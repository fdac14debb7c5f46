"""One class at one location in Cassandra, layout ``table``: typed columns, keys by the queries.

One full table holds the blocks; projections repeat parts of them under keys of their own; a
locator says where a block lies where its key does not. Read ``table_shape.py`` for what the
columns are, ``table_rows.py`` for how an aggregate lies in them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Protocol, TypeVar

from migrator.errors import DamagedBlock, Refused, Terminal
from migrator.exchange import Change
from migrator.model.block import Address, Block, Patch
from migrator.model.canonical import encode
from migrator.model.ending import Ending
from migrator.model.move import At
from migrator.model.path import child
from migrator.model.rules import Entries
from migrator.model.value import Value, show
from migrator.ports import Held, Json, Observer, Page, Statistics
from migrator.retry import insisted, request
from migrator.stores.cassandra import table_ddl as ddl
from migrator.stores.cassandra import table_facts as facts
from migrator.stores.cassandra.edge import NoColumn
from migrator.stores.cassandra.live import Live
from migrator.stores.cassandra.locator import Locator
from migrator.stores.cassandra.ring import sample
from migrator.stores.cassandra.seen import Pristine, ended
from migrator.stores.cassandra.table_catalog import table_info, user_types
from migrator.stores.cassandra.table_exchange import TableExchanger, why_not
from migrator.stores.cassandra.table_partitions import Partitions
from migrator.stores.cassandra.table_read import TableReader, all_columns
from migrator.stores.cassandra.table_rows import Damaged, Rows, is_empty
from migrator.stores.cassandra.table_shape import Column, Shape, TableInfo, shape_of
from migrator.stores.cassandra.table_spec import SIDE, Spec, spec_of
from migrator.stores.cassandra.table_wire import Values, Wire
from migrator.stores.cassandra.table_write import TableWriter

T = TypeVar("T")


class Node(Protocol):
    """What this layout needs of an open store."""

    @property
    def name(self) -> str: ...

    @property
    def keyspace(self) -> str: ...

    @property
    def wire(self) -> Wire: ...

    @property
    def latest_expiry(self) -> int:
        """The last deadline that cells can have, in milliseconds since 1970."""

    @property
    def tells_elements(self) -> bool:
        """Whether the server tells how long single elements of a collection live."""

    def stamp(self) -> int:
        """Microseconds since 1970, later than any that was given before."""

    def cluster_time(self) -> float:
        """Seconds since 1970 by the cluster's clock."""

    def split(self, table: str, parts: int) -> list[Json]:
        """About so many token ranges that cover the ring."""


class TableReading:
    """What reads blocks of a table; the copier and the observer differ in decoding."""

    def __init__(self, node: Node, cls: str, at: At) -> None:
        self.at = at
        self.cls = cls
        self.where = f"{node.name}:{at.collection}"
        self._node = node
        self._rules = at.rules(cls)
        self._spec: Spec = spec_of(at)
        self._table = ddl.name_in(node.keyspace, self._spec.table)
        self._pristine = Pristine()

    @property
    def _wire(self) -> Wire:
        return self._node.wire.at(self.where)

    # ------------------------------------------------------------ what is there

    def _info(self, table: str) -> TableInfo | None:
        return table_info(self._wire, self._node.keyspace, table)

    @cached_property
    def _shape(self) -> Shape:
        """The shape of a table that is there. Raises Terminal where it is not."""
        info = self._info(self._spec.table)
        if info is None:
            raise Terminal(
                "there is no such table",
                where=self.where,
                hint="check name and keyspace; a target's table is made by the phase prepared",
            )
        return shape_of(self._spec, info, self.where)

    @cached_property
    def _rows(self) -> Rows:
        return self._rows_of(self._shape)

    def _rows_of(self, shape: Shape) -> Rows:
        return Rows(shape, self._rules, self.where, lambda: self._node.latest_expiry)

    @cached_property
    def _reader(self) -> TableReader:
        return TableReader(self._wire, self._shape, self._table)

    @cached_property
    def _locator(self) -> Locator | None:
        if not self._shape.located:
            return None
        if self._info(self._spec.locator) is None:
            raise Refused(
                f"the block key {', '.join(self._shape.id)} does not say where a block lies, and "
                f"there is no locator {self._spec.locator}",
                where=self.where,
                hint="leave id= out, so that the whole key of the table is the block key",
            )
        return Locator(self._wire, self._shape, self._located)

    @property
    def _located(self) -> str:
        return ddl.name_in(self._node.keyspace, self._spec.locator)

    def forget(self) -> None:
        """Read the catalogue again when the shape is next needed."""
        for name in (
            "_shape",
            "_rows",
            "_reader",
            "_locator",
            "_writer",
            "_exchanger",
            "_planned",
            "_partitions",
        ):
            self.__dict__.pop(name, None)
        self._wire.forget()

    def _by_shape(self, do: Callable[[], T]) -> T:
        """What is done by the columns of now: where the table has lost one since they were looked
        up, nothing was done that named it, and all of it is done by those that are left."""
        try:
            return do()
        except NoColumn:
            self.forget()
            return do()

    # ------------------------------------------------------------ reading

    def _decode(self, values: Values) -> Block:
        """The block of a row. Raises Damaged."""
        return self._rows.block(values)

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        """Up to ``limit`` blocks of a range after a position (None: from the start)."""
        listed = self._reader.listing(range_, position, limit, all_columns(self._shape))
        self._reader.timed(listed.rows)
        page = Page([], listed.next)
        for values in listed.rows:
            page.bytes += sum(len(data) for data in values.values() if data is not None)
            try:
                page.blocks.append(self._decode(values))
            except Damaged as error:
                page.damaged.append((self._key_of(values), str(error)))
        return page

    def _key_of(self, values: Values) -> Value:
        try:
            return self._rows.id(values)
        except (ValueError, TypeError):
            return [values[name] for name in self._shape.key.columns]

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        """The blocks of these keys, in their order; None where there is none."""
        return self._by_shape(lambda: self._read(ids))

    def _read(self, ids: Sequence[Value]) -> list[Block | None]:
        blocks: list[Block | None] = []
        rows = self._lookup(ids)
        there = [row for row in rows if row is not None]
        self._reader.timed(there)
        timed = iter(there)
        for id, row in zip(ids, rows, strict=True):
            block = None if row is None else self._held(id, next(timed))
            # Another kind of key may have the same bytes: that is another block.
            same = block is not None and encode(block.id) == encode(id)
            blocks.append(block if same else None)
        return blocks

    def _held(self, id: Value, values: Values) -> Block:
        """The block of a row that was found under a key. Raises DamagedBlock."""
        try:
            return self._decode(values)
        except Damaged as error:
            raise DamagedBlock(
                f"{show(id)} can't be read: {error}",
                where=self.where,
                hint="mend or remove the row with the application that wrote it",
            ) from None

    def _lookup(self, ids: Sequence[Value]) -> list[Values | None]:
        names = all_columns(self._shape)
        if self._locator is None:
            return list(self._reader.by_key([self._rows.address(id) for id in ids], names))
        found: list[Values | None] = [None] * len(ids)
        held_ids = map(self._rows.key_of, ids)
        left = {i: held for i, held in enumerate(held_ids) if held is not None}
        # A block that moves is at its old place no more before a reader knows the new one.
        for _ in range(3):
            order = list(left)
            asked = [tuple(left[i][name] for name in self._shape.id) for i in order]
            places = self._locator.find(asked)
            keys = [None if place is None else place.key for place in places]
            for i, key, values in zip(order, keys, self._reader.by_key(keys, names), strict=True):
                found[i] = values
                if values is not None or key is None:
                    del left[i]
            if not left:
                break
        return found


class TableCollection(Live, TableReading):
    """The blocks of one class in typed columns."""

    # ------------------------------------------------------------ the collection itself

    def exists(self) -> bool:
        """Whether the full table is there."""
        return self._info(self._spec.table) is not None

    def create(self) -> None:
        """Make the tables that are missing; does nothing where all are there.

        Raises Refused where nothing says what they look like, or one is there already and is
        another.
        """
        info = self._info(self._spec.table)
        shape = shape_of(self._spec, info, self.where)
        names = [projection.name for projection in self._spec.projections]
        if shape.located:
            names.append(self._spec.locator)
        found = {name: self._info(name) for name in names}
        ddl.check_made(shape, found, self.where)
        ddl.check_types(self._spec.types, user_types(self._wire, self._node.keyspace), self.where)
        missing = [name for name in names if found[name] is None]
        if info is not None and missing and self.count():
            raise Refused(
                f"the table holds rows already, and {missing[0]} is not there: it would lack them",
                where=self.where,
                hint="give the target a name of its own",
            )
        if info is None or missing or self._spec.indexes:
            for statement in ddl.creation(shape, self._node.keyspace):
                self._wire.define(statement)
        if info is None:
            self._pristine.holds = True
        self.forget()

    def drop(self) -> None:
        """Remove the tables; does nothing where they are not there."""
        names = [self._spec.table, *(p.name for p in self._spec.projections), self._spec.locator]
        for name in names:
            if self._info(name) is not None:
                table = ddl.name_in(self._node.keyspace, name)
                self._wire.define(f"DROP TABLE IF EXISTS {table}")
        made = user_types(self._wire, self._node.keyspace) if self._spec.types else {}
        for name in reversed([name for name in self._spec.types if name in made]):
            with suppress(Terminal):  # another table still uses it
                type_ = ddl.name_in(self._node.keyspace, name)
                self._wire.define(f"DROP TYPE IF EXISTS {type_}")
        self._pristine.holds = False
        self.forget()

    def schema(self) -> Json:
        """The tables as the catalogue describes them."""
        if not self.exists():
            return None
        names = [self._spec.table, *(p.name for p in self._spec.projections), self._spec.locator]
        found = {name: self._info(name) for name in names}
        return {name: info.described() for name, info in found.items() if info is not None}

    def shape_now(self) -> Json:
        """The columns and types of the tables; None where one is missing."""
        names = [self._spec.table, *(p.name for p in self._spec.projections)]
        found = {name: self._info(name) for name in names}
        described = {name: info.described() for name, info in found.items() if info is not None}
        if len(described) < len(found):
            return None
        return {n: {"columns": d["columns"], "types": d["types"]} for n, d in described.items()}

    def findings(self) -> Iterable[tuple[str, str, str]]:
        """What a plan should tell of these tables."""
        info = self._info(self._spec.table)
        if info is None:
            return []
        return facts.findings(self._wire, self._node.keyspace, info, self._spec)

    def count(self) -> int:
        """The number of rows, counted range by range: one query would run out of time."""
        estimate = facts.estimate(self._wire, self._node.keyspace, self._spec.table)
        ranges = self.split(max(4, estimate // facts.COUNTED_AT_ONCE))
        return sum(request(self._reader.count, range_) for range_ in ranges)

    def statistics(self) -> Statistics:
        """Counted where the server's estimate says that there are few; bytes from a sample."""
        estimate = facts.estimate(self._wire, self._node.keyspace, self._spec.table)
        exact = estimate < facts.COUNTED
        blocks = self.count() if exact else estimate
        listed = self._reader.listing(None, None, 100, list(self._shape.columns))
        size = sum(len(x) for row in listed.rows for x in row.values() if x is not None)
        return Statistics(blocks, size * blocks // max(1, len(listed.rows)), exact)

    def settle(self) -> None:
        """Cassandra has neither sequences nor statistics of its own to mend."""

    # ------------------------------------------------------------ ranges

    def split(self, parts: int) -> list[Json]:
        """About ``parts`` token ranges that cover all keys."""
        return self._node.split(self._spec.table, parts)

    def keys(self, range_: Json, position: Json, limit: int) -> tuple[list[Value], Json]:
        """As ``page``, the keys alone."""
        names = [*self._shape.id, *([SIDE] if self._shape.side else [])]
        listed = self._reader.listing(range_, position, limit, names)
        return [self._key_of(values) for values in listed.rows], listed.next

    def sample(self, size: int) -> Page:
        """Blocks from all over the ring."""
        return sample(self, size, 64)

    def read_entries(self, id: Value, paths: Sequence[str]) -> Entries | None:
        """Some entries of a block, those that exist; None where there is no such block, or it has
        ended."""
        (block,) = self.read([id])
        if block is None or ended(block.expires):
            return None
        return {path: block.entries[path] for path in paths if path in block.entries}

    def observer(self) -> Observer:
        """The independent reader of the same table."""
        from migrator.stores.cassandra.table_observe import TableObserver

        return TableObserver(self._node, self.cls, self.at)

    # ------------------------------------------------------------ writing

    @cached_property
    def _writer(self) -> TableWriter:
        return TableWriter(
            self._wire,
            self._shape,
            self._rows,
            self._node.keyspace,
            self._table,
            self._locator,
            lambda: self._node.stamp(),
            self.where,
            self._pristine,
        )

    def write(self, blocks: Sequence[Block]) -> int:
        """Put whole blocks; the bytes sent. Raises DoesNotFit before anything is written."""
        return self._by_shape(lambda: self._writer.write(blocks)) if blocks else 0

    def patch(self, patches: Sequence[Patch]) -> None:
        """Set and remove entries. Raises Terminal for a block that is not there."""
        self._by_shape(lambda: self._writer.patch(patches))

    def delete(self, addresses: Sequence[Address]) -> None:
        """Remove blocks; those that are not there are no error."""
        if addresses:
            self._by_shape(lambda: self._writer.delete(addresses))

    @cached_property
    def _exchanger(self) -> TableExchanger:
        return TableExchanger(
            self._wire,
            self._shape,
            self._rows,
            self._table,
            self._held,
            self.where,
            self._pristine,
        )

    @property
    def exchanging_alone(self) -> bool:
        """Wherever blocks can be changed on condition."""
        return why_not(self._shape) is None

    def exchange(self, id: Value, held: Block | None, change: Change) -> bool:
        """Change a block that still is ``held``, by a lightweight transaction."""
        return self._by_shape(lambda: self._exchanger.exchange(id, held, change))

    def replace(self, id: Value, change: Block | None) -> None:
        """Put a whole block, or remove it, whatever lies there, by a lightweight transaction."""
        self._by_shape(lambda: self._exchanger.replace(id, change))

    def _read_by(self, node: Node) -> TableCollection:
        other = TableCollection(node, self.cls, self.at)
        other._shape = self._shape  # the catalogue takes reads of no other strength
        return other

    # ------------------------------------------------------------ what fits

    def size(self, block: Block) -> int:
        """The bytes of the block's row. Raises DoesNotFit where the columns can't hold it."""
        row = self._planned.row(block)
        # A plan asks this of every block: so it learns which partitions would be too large.
        self._partitions.add(row)
        return row.size

    @cached_property
    def _partitions(self) -> Partitions:
        return Partitions(self._planned.shape)

    @property
    def ending(self) -> Ending:
        """The field that holds the deadlines of the others, where the layout names one."""
        return {} if self._spec.deadlines is None else {self._spec.deadlines: ""}

    @property
    def write_times(self) -> str | None:
        """The field that holds when the others were written, where the layout names one."""
        return self._spec.write_times

    def target_findings(self, blocks: int, size: int) -> Iterable[tuple[str, str, str]]:
        """What a plan should tell that writes so many blocks and bytes here."""
        return self._partitions.findings(blocks)

    @cached_property
    def _planned(self) -> Rows:
        """How blocks will lie, also before the table is made.

        Whoever judges values asks for it, as a rule between two calls that are repeated.
        """
        shape = shape_of(self._spec, insisted(self._info, self._spec.table), self.where)
        return self._rows_of(shape)

    def needs_tag(self, value: Value) -> Held | None:
        """How a value that looks native is held after all."""
        return facts.needs_tag(value)

    def needs_tag_at(self, path: str, value: Value) -> Held | None:
        """How what has no element is held in a column for which that is no value at all."""
        column = self._multicell.get(path)
        return facts.EMPTY if column is not None and is_empty(column, value) else None

    @cached_property
    def _multicell(self) -> dict[str, Column]:
        """The columns whose elements are cells of their own, by the path of their field."""
        shape = self._planned.shape
        columns = (shape.columns[name] for name in shape.fields)
        return {child("", column.name): column for column in columns if column.multicell}

    def same_key(self, id: Value) -> Value:
        """The bytes of the key's columns, and the value of a decimal, by which it may sort."""
        held = self._planned.key_of(facts.same_key(id))
        return id if held is None else list(held.values())
