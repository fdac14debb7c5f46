"""Layout ``tables``: an aggregate is a row with the rows that hang below it.

The block's id is the value of the root's key column, or the list of a composite key's values.
Reads see one snapshot; a page of roots takes one query for each table, however many roots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.errors import DamagedBlock, Refused, Terminal
from migrator.exchange import Change
from migrator.model.block import Address, Block, Patch
from migrator.model.canonical import encode
from migrator.model.move import At, Tables
from migrator.model.rules import Entries
from migrator.model.value import Opaque, Value
from migrator.ports import Held, How, Inference, Json, Observer, Page, Statistics
from migrator.stores.sql.catalog import Table, mark, read_table
from migrator.stores.sql.columns import Codec
from migrator.stores.sql.documents import JSON_NULL
from migrator.stores.sql.findings import findings, same_key, unfit_float, unfit_text
from migrator.stores.sql.keys import among, between, id_of, key_of, selected, sure, to_json
from migrator.stores.sql.live import Live
from migrator.stores.sql.rows import Found, Reader, fetch
from migrator.stores.sql.shape import Node, on_server, resolve
from migrator.stores.sql.single import One, single
from migrator.stores.sql.unfit import Unfit
from migrator.stores.sql.unfold import unfold
from migrator.stores.sql.write import Writer, refuse_too_long

if TYPE_CHECKING:
    from migrator.stores.sql.store import SqlStore

_CHUNK = 400
_COUNTED = 100_000
_SAMPLE = 100


class TablesReading:
    """What reads aggregates from tables; the copier and the observer differ in decoding."""

    def __init__(self, store: SqlStore, cls: str, at: At) -> None:
        if at.tables is None:
            raise Refused("the layout tables needs tables(...)", where=str(at))
        self.store = store
        self.database = store.database
        self.dialect = store.database.dialect
        self.cls = cls
        self.at = at
        self.spec: Tables = at.tables
        self.where = str(at)
        self.rules = at.rules(cls)

    @cached_property
    def root(self) -> Node:
        """The shape. Raises Refused for what the script and the catalogue don't agree on."""
        with self.database.reading(self.where) as connection:
            if read_table(connection, self.dialect, self.spec.table) is None:
                raise Terminal(
                    f"there is no table {self.spec.table!r}",
                    where=self.where,
                    hint="check the name; a target's tables are made by the phase prepared",
                )
            return resolve(on_server(connection, self.dialect), self.spec, self.where)

    @cached_property
    def reader(self) -> Reader:
        return Reader(self.root, self.dialect)

    @cached_property
    def single(self) -> One | None:
        """What reads one aggregate by texts that are made once, where there may be such."""
        return single(self.reader, self.database.engine.dialect)

    @cached_property
    def _key_places(self) -> tuple[int, ...]:
        return self.root.places(self.root.key)

    @cached_property
    def _key_codecs(self) -> tuple[Codec, ...]:
        return self.root.codecs_of(self.root.key)

    @contextmanager
    def _reading(self, *, by_key: bool = False) -> Iterator[Connection]:
        """A snapshot, once the shape is known: a pool may have one connection only."""
        _ = self.reader
        with self.database.reading(self.where, by_key=by_key) as connection:
            yield connection

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        """Up to ``limit`` blocks of a range after a position, in one snapshot."""
        conditions = between(self.root, self.dialect, range_, position, self.where)
        with self._reading() as connection:
            found, weight = self.reader.read(connection, conditions, limit)
        last = to_json(self._key(found[-1])) if len(found) == limit else None
        return self._page(found, last, weight)

    def _page(self, found: Sequence[Found], last: Json = None, weight: int = 0) -> Page:
        damaged = [(self.id_of(one), one.problem) for one in found if one.problem]
        blocks = [self._block(one) for one in found if not one.problem]
        return Page(blocks, last, weight, damaged)

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        """The blocks of these keys, in their order; None where there is none.

        An id of another kind than the key's column holds is the id of no block.
        """
        if len(ids) == 1 and self.single is not None:
            with self.database.asking(self.where, snapshot=self.single.snapshot) as raw:
                found = self._found_one(raw, ids[0])
            return [self.only(found, ids[0])]
        with self._reading(by_key=True) as connection:
            return self.read_on(connection, ids)

    def read_on(self, connection: Connection, ids: Sequence[Value]) -> list[Block | None]:
        """As ``read``, on a connection that is open already."""
        return self.in_order(self._found(connection, ids), ids)

    def in_order(self, found: Iterable[Found], ids: Sequence[Value]) -> list[Block | None]:
        """The blocks of what was found; raises DamagedBlock."""
        blocks: dict[bytes, Block] = {}
        for one in found:
            if one.problem:
                raise DamagedBlock(one.problem, where=self.where)
            blocks[encode(self.id_of(one))] = self._block(one)
        return [blocks.get(encode(id)) for id in ids]

    def read_raw(self, raw: Any, id: Value) -> Block | None:
        """As ``read`` of one key, on the driver's own connection, in a snapshot that has begun."""
        return self.only(self._found_one(raw, id), id)

    def only(self, found: list[Found], id: Value) -> Block | None:
        """As ``in_order``, of one key."""
        if len(found) != 1 or found[0].problem:
            return self.in_order(found, [id])[0]
        held = self.id_of(found[0])
        same = held == id if type(held) is type(id) is str else encode(held) == encode(id)
        return Block(held, self.rules.partition(found[0].record)) if same else None

    def _found_one(self, raw: Any, id: Value) -> list[Found]:
        """What lies under a key, by the texts for one, and the driver's own connection."""
        key = self.encoded_key(id)
        return [] if key is None or self.single is None else self.single.read(raw, key)

    def _found(self, connection: Connection, ids: Sequence[Value]) -> Iterator[Found]:
        """What lies under some keys, damaged or not."""
        if len(ids) == 1 and self.single is not None:
            yield from self._found_one(connection.connection.driver_connection, ids[0])
            return
        encoded = list(filter(None, map(self.encoded_key, ids)))
        columns = [self.root.table.c[name] for name in self.root.key]
        codecs = self.root.codecs_of(self.root.key)
        for start in range(0, len(encoded), _CHUNK):
            chunk = encoded[start : start + _CHUNK]
            found, _ = self.reader.read(
                connection, [among(codecs, columns, chunk, self.dialect)], None
            )
            yield from found

    def encoded_key(self, id: Value) -> list[Any] | None:
        """A block's id as the key's columns encode it; None where they can't hold it."""
        codecs = self._key_codecs
        key = key_of(id, len(codecs))
        if key is None or None in key:
            return None
        try:
            if len(codecs) == 1:  # as below, and quicker
                return [codecs[0].encode(id)]
            return [codec.encode(x) for codec, x in zip(codecs, key, strict=True)]
        except Unfit:
            return None

    def _key(self, found: Found) -> tuple[Value, ...]:
        return sure(tuple([found.values[i] for i in self._key_places]), self.where)

    def id_of(self, found: Found) -> Value:
        """The block's id of a root row."""
        places = self._key_places
        id = found.values[places[0]]
        return id if len(places) == 1 and id is not JSON_NULL else id_of(self._key(found))

    def _block(self, found: Found) -> Block:
        return Block(self.id_of(found), self.rules.partition(found.record))


class TablesCollection(TablesReading, Live):
    """The blocks of one class in tables."""

    _layout = "tables"

    def exists(self) -> bool:
        """Whether the root's table is there."""
        if self.database.absent:
            return False
        with self.database.reading(self.where) as connection:
            return read_table(connection, self.dialect, self.spec.table) is not None

    def schema(self) -> Json:
        """The tables as the catalogue describes them."""
        if not self.exists():
            return None
        return [None if table is None else table.described() for table in self._tables()]

    def shape_now(self) -> Json:
        """The columns and keys of the tables; None where one is missing."""
        tables = self.tables_by_name()
        found = {name: table.shape() for name, table in tables.items() if table is not None}
        return found if len(found) == len(tables) else None

    def shape_mark(self) -> Json:
        """What is another once the tables have another shape; None where nobody can tell."""
        with self.database.reading(self.where) as connection:
            return mark(connection, self.dialect, [spec.table for spec, _ in _all(self.spec)])

    def _tables(self) -> list[Table | None]:
        """All tables of the aggregate; None for those that are still to be made (C57)."""
        with self.database.reading(self.where) as connection:
            return [read_table(connection, self.dialect, spec.table) for spec, _ in _all(self.spec)]

    def tables_by_name(self) -> dict[str, Table | None]:
        """The tables that the script names, as they are; None for those still to be made."""
        names = [spec.table for spec, _ in _all(self.spec)]
        tables = [None] * len(names) if self.database.absent else self._tables()
        return dict(zip(names, tables, strict=True))

    def count(self) -> int:
        """The number of roots, counted; also while tables below are still to be made (C57)."""
        root, *below = tables = self._tables()
        made = zip(tables, _all(self.spec), strict=True)
        if root is not None and None in below and all(t or declared for t, (_, declared) in made):
            with self.database.reading(self.where) as connection:
                return self._count(connection, sa.table(root.name, schema=root.schema))
        with self._reading() as connection:
            return self._count(connection, self.root.table)

    def _count(self, connection: Connection, table: sa.TableClause) -> int:
        query = sa.select(sa.func.count()).select_from(table)
        return int(connection.execute(query).scalar_one())

    def statistics(self) -> Statistics:
        """Blocks by the server's own estimate where there are many; bytes from a sample."""
        with self._reading() as connection:
            estimate = self._estimate(connection)
            exact = estimate is None or estimate < _COUNTED
            blocks = estimate or 0
            if exact:
                blocks = self._count(connection, self.root.table)
            found, weight = self.reader.read(connection, [], _SAMPLE)
        return Statistics(blocks, weight * blocks // max(1, len(found)), exact)

    def _estimate(self, connection: Connection) -> int | None:
        info = self.root.info
        if self.dialect == "sqlite":
            return None
        asked = {"schema": info.schema, "name": info.name}
        if self.dialect == "mysql":
            query = (
                "SELECT table_rows FROM information_schema.tables "
                "WHERE table_schema = coalesce(%(schema)s, database()) AND table_name = %(name)s"
            )
        else:
            query = (
                "SELECT nullif(c.reltuples, -1) FROM pg_class c "
                "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relname = %(name)s "
                "AND CASE WHEN %(schema)s::text IS NULL THEN pg_table_is_visible(c.oid) "
                "ELSE n.nspname = %(schema)s END"
            )
        estimate = connection.exec_driver_sql(query, asked).scalar()
        return None if estimate is None else int(estimate)

    def split(self, parts: int) -> list[Json]:
        """Ranges of about as many roots each, open at both ends."""
        with self._reading() as connection:
            bounds = [to_json(key) for key in self._spread(connection, parts)]
        edges: list[Json] = [None, *bounds, None]
        return [[edges[i], edges[i + 1]] for i in range(len(edges) - 1)]

    def _spread(self, connection: Connection, parts: int) -> list[tuple[Value, ...]]:
        """The last key of each of so many equal parts, without the very last."""
        total = self._count(connection, self.root.table)
        if not total:
            return []
        root = self.root
        step = max(1, -(-total // max(1, parts)))
        codecs = root.codecs_of(root.key)
        columns = [root.table.c[name] for name in root.key]
        number = sa.func.row_number().over(order_by=columns).label("row number")
        ranked = sa.select(*columns, number).subquery("ranked")
        query = (
            sa.select(*(selected(c, ranked.c[c.name]) for c in codecs))
            .where(ranked.c["row number"] % step == 0, ranked.c["row number"] < total)
            .order_by(ranked.c["row number"])
        )
        rows = fetch(connection, query, self.dialect)
        return [sure(_decoded(codecs, row), self.where) for row in rows]

    def sample(self, size: int) -> Page:
        """Blocks at even distances over the key's order."""
        with self._reading() as connection:
            keys = self._spread(connection, size + 1)
            if len(keys) < size:
                found, _ = self.reader.read(connection, [], size)
            else:
                found = list(self._found(connection, [id_of(key) for key in keys[:size]]))
        return self._page(found)

    def keys(self, range_: Json, position: Json, limit: int) -> tuple[list[Value], Json]:
        """As ``page``, the keys alone."""
        root = self.root
        codecs = root.codecs_of(root.key)
        columns = [root.table.c[name] for name in root.key]
        query = (
            sa.select(*(selected(c, column) for c, column in zip(codecs, columns, strict=True)))
            .where(*between(root, self.dialect, range_, position, self.where))
            .order_by(*columns)
            .limit(limit)
        )
        with self._reading() as connection:
            rows = fetch(connection, query, self.dialect)
        keys = [sure(_decoded(codecs, row), self.where) for row in rows]
        return [id_of(key) for key in keys], to_json(keys[-1]) if len(keys) == limit else None

    def read_entries(self, id: Value, paths: Sequence[str]) -> Entries | None:
        """Some entries of a block, those that exist; None where there is no such block."""
        (block,) = self.read([id])
        if block is None:
            return None
        return {path: block.entries[path] for path in paths if path in block.entries}

    def inference(self) -> Inference | None:
        """What tells columns from the blocks, where the root is to be made and the script leaves
        some table undescribed."""
        if self.exists() or all(described for _, described in _all(self.spec)):
            return None
        from migrator.stores.sql.infer import TablesInference

        return TablesInference(self.at, self.dialect)

    def findings(self) -> Iterable[tuple[str, str, str]]:
        """What a plan should tell of these tables."""
        return findings(self)

    def create(self) -> None:
        """Make the tables, keys and indexes that are missing; does nothing where all are there.

        Raises Refused where nothing says what a table looks like, or one is there already
        with other columns.
        """
        from migrator.stores.sql.ddl import create

        create(self)
        self.forget()

    def drop(self) -> None:
        """Remove the tables, children first; does nothing where they are not there."""
        from migrator.stores.sql.ddl import drop

        drop(self)
        self.forget()

    def forget(self) -> None:
        """Read the catalogue again when the shape is next needed."""
        for name in (
            "root",
            "reader",
            "single",
            "writer",
            "shape_to_be",
            "_key_places",
            "_key_codecs",
        ):
            self.__dict__.pop(name, None)

    @cached_property
    def writer(self) -> Writer:
        if self.dialect == "sqlite":
            from migrator.stores.sql.write_sqlite import SqliteWriter

            return SqliteWriter(self)
        return Writer(self)

    def write(self, blocks: Sequence[Block]) -> int:
        """Put whole blocks in one transaction; the bytes sent. Raises DoesNotFit."""
        return self.writer.write(blocks) if blocks else 0

    def patch(self, patches: Sequence[Patch]) -> None:
        """Set and remove entries, each patch atomically. Raises Terminal for no block."""
        self.writer.patch(patches)

    def amend(
        self, id: Value, set: Mapping[str, Value], append: Mapping[str, Value]
    ) -> Block | None:
        """Set fields of an aggregate, and add to its lists, while its root's row is held."""
        return self.writer.amend(id, set, append)

    def exchange(self, id: Value, held: Block | None, change: Change) -> bool:
        """Change an aggregate that is still as it was read."""
        return self.writer.exchange(id, held, change)

    def delete(self, addresses: Sequence[Address]) -> None:
        """Remove aggregates with all their rows."""
        if addresses:
            self.writer.delete(addresses)

    def settle(self) -> None:
        """Move sequences past the rows, add what foreign keys now can be, gather statistics."""
        from migrator.stores.sql.settle import settle

        settle(self)
        self.forget()

    def numbers(self) -> bool | None:
        """Whether the server counts rows of the root table that come without a key."""
        from migrator.stores.sql.settle import numbers

        return (shape := self.shape_to_be) is not None and numbers(shape.info, self.dialect)

    def number_on(self, past: int = 0) -> None:
        """Move sequences past the rows, and nothing else: quick, whatever the tables hold."""
        from migrator.stores.sql.settle import number_on

        number_on(self, past)

    def observer(self) -> Observer:
        """The independent reader of these tables."""
        from migrator.stores.sql.observe import TablesObserver

        return TablesObserver(self.store, self.cls, self.at)

    def size(self, block: Block) -> int:
        """About the bytes of the block's rows; no limit of a server is by aggregate.

        Raises DoesNotFit where the tables that are there, or those that will be made, can't
        hold the block, or a statement its rows; Refused where nothing says what a table will look
        like.
        """
        shape = self.shape_to_be
        if shape is not None:
            unfolded = unfold(shape, [block], self.where)
            if self.dialect == "mysql":
                refuse_too_long(unfolded, self.database.longest, self.where)
            return unfolded.bytes
        return len(repr(block.entries))

    @property
    def whole(self) -> bool:
        """Whether all tables are there."""
        return None not in self.tables_by_name().values()

    @cached_property
    def shape_to_be(self) -> Node | None:
        """The shape once all tables are made; None where the server may not be asked for it."""
        if self.whole:
            return self.root
        from migrator.stores.sql.draft import NotAllowed, draft

        try:
            return draft(self)
        except NotAllowed:
            return None

    def needs_tag(self, value: Value) -> Held | None:
        """Refused where no column at all can hold the value; what is the system's own, it holds."""
        if type(value) is Opaque and value.system == self.dialect:
            return Held(How.NATIVE, "its own")
        if type(value) is str and (reason := unfit_text(self.dialect, value)):
            return Held(How.REFUSED, reason)
        if type(value) is float and (reason := unfit_float(self.dialect, value)):
            return Held(How.REFUSED, reason)
        return None

    def same_key(self, id: Value) -> Value:
        """The key by the collation of its columns, as the server has it."""
        return same_key(self, id)


def _all(spec: Tables, like: str | None = None) -> Iterator[tuple[Tables, bool]]:
    """The tables of an aggregate, and whether the script says how each is to be made."""
    like = spec.like or like
    yield spec, bool(like or spec.columns)
    for below in spec.children.values():
        yield from _all(below, like)


def _decoded(codecs: Sequence[Any], row: Sequence[Any]) -> tuple[Value, ...]:
    return tuple(
        raw if codec.decode is None or raw is None else codec.decode(raw)
        for codec, raw in zip(codecs, row, strict=True)
    )
