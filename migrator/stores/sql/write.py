"""Whole aggregates into tables: what differs is changed, what is gone is deleted.

One transaction for a batch. Rows are upserted by their own key only, never replaced, so that a
clash on another unique key is an error that names both rows (hard case C15). Deletions go
children first, changes parents first. Where only the server can tell whether what was written
reads back equal (lists ordered by text, keys of a batch whose collation folds), it is read back
before the commit.

One aggregate alone, as a gateway writes it, is read while the root's row is held, or its key is
taken by nobody else: of two whole writes at the same moment one stays, and no mixture of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.errors import DoesNotFit, MigratorError, Terminal
from migrator.exchange import Change, is_still, made_of
from migrator.model.block import Address, Block, Patch
from migrator.model.canonical import encode, equal
from migrator.model.rules import assemble
from migrator.model.value import Record, Value, show
from migrator.stores.sql.alone import Alone, Decide, Wanted
from migrator.stores.sql.changes import Changes, changes_of, parents_first
from migrator.stores.sql.errors import is_unique
from migrator.stores.sql.keys import among, bind, exactly
from migrator.stores.sql.rows import Found
from migrator.stores.sql.shape import Node, unique_keys
from migrator.stores.sql.unfold import Form, Later, Unfolded, Written, canonical, form, unfold
from migrator.stores.sql.upsert import insert, length, spelled, update, upsert

if TYPE_CHECKING:
    from migrator.stores.sql.tables import TablesCollection

_CHUNK = 400
# How often a write is begun anew whose unique key was taken by a row that is gone by then.
_TRIES = 5
# What a statement of MariaDB or MySQL has around the values of a row, at most.
_ROUND_IT = 65_536


def refuse_too_long(unfolded: Unfolded, longest: int, where: str) -> None:
    """Raise DoesNotFit for a row that no statement of a server of MariaDB or MySQL has room for."""
    for rows in unfolded.rows.values():
        for row in rows:
            if 4 * length(row.raw) > longest and spelled(row.raw) > longest - _ROUND_IT:
                raise DoesNotFit(
                    f"its row takes {spelled(row.raw):,} bytes, and a statement of this server "
                    f"{longest:,}",
                    key=row.block.id,
                    path=row.path,
                    where=where,
                    hint="raise max_allowed_packet on the server, or cut it with an evolution",
                )


class Writer:
    """Writes the blocks of one collection."""

    def __init__(self, collection: TablesCollection) -> None:
        self.collection = collection
        self.root = collection.root
        self.dialect = collection.dialect
        self.where = collection.where
        # SQLite checks foreign keys row by row, also those to tables that another move fills.
        self._enforce = all(
            key.columns == node.parent for node in self.root.walk() for key in node.info.foreign
        )

    @cached_property
    def alone(self) -> Alone:
        """What writes one aggregate alone."""
        return Alone(self)

    def write(self, blocks: Sequence[Block]) -> int:
        """Put whole blocks in one transaction; the bytes sent. Raises DoesNotFit."""
        unfolded = Later(partial(self._rows_of, blocks))
        try:
            if len(blocks) == 1:
                self._put_alone(blocks[0].id, unfolded)
            else:
                rows = unfolded()
                with self._transaction() as connection:
                    self._put(connection, rows, blocks)
        except DoesNotFit as error:
            raise self._blamed(error, blocks) from error
        return unfolded().bytes

    def _rows_of(self, blocks: Sequence[Block]) -> Unfolded:
        """The rows of whole blocks. Raises DoesNotFit, also for a row that is too long for a
        statement: the server would end the session, and nobody be told why."""
        unfolded = unfold(self.root, blocks, self.where)
        if self.dialect == "mysql":
            refuse_too_long(unfolded, self.collection.database.longest, self.where)
        return unfolded

    def _transaction(self) -> Any:
        return self.collection.database.writing(self.where, foreign_keys=self._enforce)

    def _put(self, connection: Connection, unfolded: Unfolded, blocks: Sequence[Block]) -> None:
        held = self._held(connection, [block.id for block in blocks])
        self._put_over(connection, unfolded, held)
        self._read_back(connection, list((unfolded.folding | unfolded.doubtful).values()))

    def _put_alone(self, id: Value, unfolded: Later) -> None:
        """Put one aggregate."""

        def whole(found: list[Found]) -> Wanted:
            self._check_keys(found, [id])
            return Wanted(unfolded())

        self.alone.change(id, whole, unfolded)

    def by_steps(self, id: Value, decide: Decide) -> None:
        """As ``Alone.change``, statement by statement; begun anew where somebody else made the
        aggregate meanwhile, also where that one is gone by now. Raises DoesNotFit, which tells
        the row."""
        tries = _TRIES
        while True:
            try:
                with self._transaction() as connection:
                    found, held = self._hold(connection, id)
                    wanted = decide(found)
                    if wanted is None:
                        return
                    if wanted.rows is None:
                        self._remove(connection, held)
                        return
                    self._put_over(connection, wanted.rows, held, new=not found)
                    self._read_back(connection, list(wanted.rows.doubtful.values()))
                return
            except _Clash as clash:
                if isinstance(clash, _Taken) and self._is_taken(clash):
                    continue
                tries -= 1
                self._refuse_held(clash, tries)

    def _put_over(
        self,
        connection: Connection,
        unfolded: Unfolded,
        held: dict[Node, list[Found]],
        *,
        new: bool = False,
    ) -> None:
        """Change what lies there; ``new``: raise _Taken where there is a root by now."""
        nodes = list(self.root.walk())
        changes: dict[Node, Changes] = {}
        for node in nodes:
            self._adopt(connection, node, unfolded.rows[node], held)
            changes[node] = changes_of(node, unfolded.rows[node], held[node])
        for node in reversed(nodes):
            self._delete(connection, node, changes[node].gone)
        for node in nodes:
            self._change(connection, node, changes[node], new=new and node.up is None)

    def _hold(
        self, connection: Connection, id: Value
    ) -> tuple[list[Found], dict[Node, list[Found]]]:
        """What lies under a key, and its rows by table; the root's row held, where there is one.

        The first of its transaction.
        """
        key = self.collection.encoded_key(id)
        single = self.collection.single
        raw: Any = connection.connection.driver_connection
        while True:
            seen: dict[Node, list[Found]] = {node: [] for node in self.root.walk()}
            if key is None:
                return [], seen
            if single is None:
                if self._lock(connection, key):
                    return self._under(connection, [key], seen), seen
            elif (found := single.hold(raw, key, seen)) is not None:
                return found, seen
            if self.dialect == "mysql":
                # What holds the place of a row that is not there keeps others from making theirs.
                with raw.cursor() as cursor:
                    cursor.execute("ROLLBACK AND CHAIN")
                return [], seen
            if not self._under(connection, [key], seen):
                return [], seen
            # Somebody has made it between the two statements: it is there, and not held.

    def _under(
        self, connection: Connection, keys: list[list[Any]], seen: dict[Node, list[Found]]
    ) -> list[Found]:
        """The aggregates of some keys, as their columns encode them."""
        if len(keys) == 1 and (single := self.collection.single):
            return single.read(connection.connection.driver_connection, keys[0], seen)
        codecs = self.root.codecs_of(self.root.key)
        columns = [self.root.table.c[name] for name in self.root.key]
        condition = among(codecs, columns, keys, self.dialect)
        return self.collection.reader.read(connection, [condition], None, seen)[0]

    def _held(self, connection: Connection, ids: Sequence[Any]) -> dict[Node, list[Found]]:
        """The rows that lie there now for these blocks, by table."""
        seen: dict[Node, list[Found]] = {node: [] for node in self.root.walk()}
        keys = list(filter(None, map(self.collection.encoded_key, ids)))
        for start in range(0, len(keys), _CHUNK):
            self._check_keys(self._under(connection, keys[start : start + _CHUNK], seen), ids)
        return seen

    def _check_keys(self, found: list[Found], ids: Sequence[Value]) -> None:
        """Raise DoesNotFit for an aggregate of another key than these."""
        if len(found) == len(ids) == 1 and equal(self.collection.id_of(found[0]), ids[0]):
            return  # as below, and quicker
        wanted = {encode(id) for id in ids}
        for one in found:
            other = self.collection.id_of(one)
            if encode(other) not in wanted:
                raise DoesNotFit(
                    f"its key differs from {show(other)}, that of another block, only as this "
                    "collation does not",
                    key=other,
                    where=self.where,
                    hint="give the key columns a binary collation",
                )

    def _adopt(
        self, connection: Connection, node: Node, rows: list[Written], held: dict[Node, list[Found]]
    ) -> None:
        """Find rows that lie below another parent now, with all that hangs below them: it must
        not stay behind when they move."""
        if node.up is None or not node.children or not node.key:
            return
        places = node.places(node.key)
        there = {form([found.values[i] for i in places]) for found in held[node]}
        fresh = [row for row in rows if row.key not in there]
        codecs = node.codecs_of(node.key)
        columns = [node.table.c[name] for name in node.key]
        for start in range(0, len(fresh), _CHUNK):
            keys = [[row.raw[i] for i in places] for row in fresh[start : start + _CHUNK]]
            condition = exactly(codecs, columns, keys, self.dialect)
            self.collection.reader.read_at(connection, node, [condition], None, held)

    def _change(
        self, connection: Connection, node: Node, changes: Changes, *, new: bool = False
    ) -> None:
        rows = parents_first(node, changes.fresh)
        try:
            if self.dialect != "mysql":
                upsert(connection, self.dialect, node, rows + changes.changed, new=new)
                return
            # ON DUPLICATE KEY would take a clash on any unique key for the row itself.
            update(connection, node, changes.changed)
            if new:
                insert(connection, node, rows)
            else:
                self._insert_or_move(connection, node, rows)
        except Exception as error:
            if is_unique(error):
                raise (_Taken if new else _Clash)(node, rows + changes.changed) from error
            raise

    def _insert_or_move(self, connection: Connection, node: Node, rows: list[Written]) -> None:
        try:
            insert(connection, node, rows)
        except Exception as error:
            # Some rows may lie there already, below another parent: these are moved.
            if not is_unique(error) or not node.key:
                raise
            # This transaction's snapshot may be of before they came: a lock shows what is there.
            there = self._there(connection, node, rows, lock=True)
            if not there:
                raise
            update(connection, node, [row for row in rows if row.key in there])
            insert(connection, node, [row for row in rows if row.key not in there])

    def _there(
        self, connection: Connection, node: Node, rows: list[Written], *, lock: bool = False
    ) -> set[Form]:
        codecs, places = node.codecs_of(node.key), node.places(node.key)
        columns = [node.table.c[name] for name in node.key]
        found: set[Form] = set()
        for start in range(0, len(rows), _CHUNK):
            chunk = [[row.raw[i] for i in places] for row in rows[start : start + _CHUNK]]
            query = sa.select(*columns).where(among(codecs, columns, chunk, self.dialect))
            for row in connection.execute(query.with_for_update() if lock else query):
                found.add(form([_decode(c, x) for c, x in zip(codecs, row, strict=True)]))
        return found

    def _delete(self, connection: Connection, node: Node, gone: list[list[Any]]) -> None:
        for condition in self.keys_of(node, gone):
            connection.execute(sa.delete(node.table).where(condition))

    def keys_of(self, node: Node, gone: list[list[Any]]) -> Iterator[sa.ColumnElement[bool]]:
        """The conditions that rows meet which go, by their values."""
        names = node.key or node.parent
        codecs, places = node.codecs_of(names), node.places(names)
        if any(values[i] is None for values in gone for i in places):
            raise DoesNotFit(
                f"table {node.info.name} holds a row whose key {list(names)} is NULL in part",
                where=self.where,
                hint="give that row a key, and the columns NOT NULL",
            )
        columns = [node.table.c[name] for name in names]
        for start in range(0, len(gone), _CHUNK):
            keys = [
                [c.encode(values[i]) for c, i in zip(codecs, places, strict=True)]
                for values in gone[start : start + _CHUNK]
            ]
            yield exactly(codecs, columns, keys, self.dialect)

    def _read_back(self, connection: Connection, blocks: list[Block]) -> None:
        if blocks:
            read = self.collection.read_on(connection, [block.id for block in blocks])
            self.compare(blocks, read)

    def compare(self, blocks: Sequence[Block], read: Sequence[Block | None]) -> None:
        """Raise DoesNotFit where what was read is not what was written."""
        for wanted, got in zip(blocks, read, strict=True):
            if got is None:
                raise DoesNotFit(
                    "its key is taken by another block, which this collation holds to be equal",
                    key=wanted.id,
                    where=self.where,
                    hint="give the key columns a binary collation",
                )
            left, right = assemble(wanted.entries), assemble(got.entries)
            if not equal(_plain(left), right):
                paths = [name for name in left if not equal(_plain(left[name]), right.get(name))]
                raise DoesNotFit(
                    "it would not come back in this order",
                    key=wanted.id,
                    path=paths[0] if paths else "",
                    where=self.where,
                    hint='keep the order in a column: columns={"position": "INTEGER POSITION"}',
                )

    def delete(self, addresses: Sequence[Address]) -> None:
        """Remove whole aggregates; those that are not there are no error."""
        ids = [address.id for address in addresses]
        if len(ids) > 1:
            with self._transaction() as connection:
                self._remove(connection, self._held(connection, ids))
            return

        def none(found: list[Found]) -> Wanted:
            self._check_keys(found, ids)
            return Wanted(None)

        try:
            self.alone.change(ids[0], none)
        except DoesNotFit as error:
            raise self._blamed(error, [Block(ids[0], {})]) from error

    def _remove(self, connection: Connection, held: dict[Node, list[Found]]) -> None:
        for node in reversed(list(self.root.walk())):
            self._delete(connection, node, [found.values for found in held[node]])

    def patch(self, patches: Sequence[Patch]) -> None:
        """Set and remove entries, each patch in a transaction that holds the root's row."""
        for patch in patches:
            self.alone.change(patch.id, partial(self._patched, patch))

    def _patched(self, patch: Patch, found: list[Found]) -> Wanted:
        self._check_keys(found, [patch.id])
        (block,) = self.collection.in_order(found, [patch.id])
        if block is None:
            raise Terminal(f"there is no block {show(patch.id)} to patch", where=self.where)
        changed = made_of(Block(patch.id, block.entries), patch)
        return Wanted(self._rows_of([changed]))

    def amend(
        self, id: Value, set: Mapping[str, Value], append: Mapping[str, Value]
    ) -> Block | None:
        """Set fields of an aggregate, and add to its lists; the block after that, None where it is
        not there or does not fit so, with nothing written."""
        if any(codec.column.generated for node in self.root.walk() for codec in node.codecs):
            return None  # what the server makes of it has to be read
        amender = self.alone.amender
        at_once = None if amender is None else amender.amend(id, set, append)
        if at_once is not None:
            return at_once
        after: list[Block] = []

        def change(found: list[Found]) -> Wanted | None:
            after.clear()
            self._check_keys(found, [id])
            (there,) = self.collection.in_order(found, [id])
            made = self._amended(there, id, set, append)
            if made is None:
                return None
            after.append(made[0])
            return Wanted(made[1])

        try:
            self.alone.change(id, change)
        except DoesNotFit:
            return None
        return after[0] if after else None

    def _amended(
        self, there: Block | None, id: Value, set: Mapping[str, Value], append: Mapping[str, Value]
    ) -> tuple[Block, Unfolded] | None:
        """The block after fields were set and elements added, and its rows; None where it is not
        there, or no list to add to. Raises DoesNotFit."""
        record = None if there is None else amended(assemble(there.entries), set, append)
        if record is None:
            return None
        unfolded = self._rows_of([Block(id, {"": record})])
        return Block(id, self.collection.rules.partition(record)), unfolded

    def exchange(self, id: Value, held: Block | None, change: Change) -> bool:
        """Change an aggregate that is still as it was read, in one transaction."""
        blocks = [Block(id, {})]
        done = False

        def exchanged(found: list[Found]) -> Wanted | None:
            nonlocal done
            (there,) = self.collection.in_order(found, [id])
            done = is_still(there, held)
            if not done or (change is None and there is None):
                return None
            self._check_keys(found, [id])
            if change is None:
                return Wanted(None)
            blocks[:] = [made_of(there or Block(id, {}), change)]
            return Wanted(self._rows_of(blocks))

        try:
            self.alone.change(id, exchanged)
        except DoesNotFit as error:
            raise self._blamed(error, blocks) from error
        return done

    def _refuse_held(self, clash: _Clash, tries: int) -> None:
        """Raise DoesNotFit where another row holds the unique values. Where none does, it was gone
        as soon as it was met, or the key is one of an expression: for the last of the tries."""
        both = self._both_keys(clash)
        if both.key is not None or not tries:
            raise both from clash

    def _is_taken(self, clash: _Taken) -> bool:
        """Whether somebody else has made the root: what clashed was its key, and no other."""
        with self.collection.database.reading(self.where) as connection:
            return bool(self._there(connection, clash.node, clash.rows))

    def _lock(self, connection: Connection, key: list[Any]) -> bool:
        """Hold the root's row; False where there is none."""
        codecs = self.root.codecs_of(self.root.key)
        columns = [self.root.table.c[name] for name in self.root.key]
        condition = among(codecs, columns, [key], self.dialect)
        query = sa.select(*columns).where(condition).with_for_update()
        return connection.execute(query).first() is not None

    def _blamed(self, error: DoesNotFit, blocks: Sequence[Block]) -> MigratorError:
        """The same error with the block that caused it, found by trying one after another."""
        if isinstance(error, _Clash):
            return self._both_keys(error)
        if error.key is not None:
            return error
        at = blocks[-1]
        try:
            with self._transaction() as connection:
                for at in blocks if len(blocks) > 1 else ():
                    self._put(connection, self._rows_of([at]), [at])
                raise _Undo
        except _Undo:
            pass
        except DoesNotFit as again:
            if isinstance(again, _Clash):
                return self._both_keys(again)
            error = again
        key = at.id if error.key is None else error.key
        return DoesNotFit(error.what, key=key, path=error.path, where=self.where, hint=error.hint)

    def _both_keys(self, clash: _Clash) -> DoesNotFit:
        node = clash.node
        seen: dict[tuple[tuple[str, ...], bytes], Written] = {}
        with self.collection.database.reading(self.where) as connection:
            for row in clash.rows:
                for names in unique_keys(node.info):
                    values = [row.values[i] for i in node.places(names)]
                    if None in values or set(names) == set(node.key):
                        continue
                    same = canonical(values)
                    other = self._holder(connection, node, names, row)
                    if other is None and (names, same) in seen:
                        twin = seen[names, same]
                        other = show([twin.values[i] for i in node.places(node.key)])
                    seen[names, same] = row
                    if other is not None:
                        return self._clashing(node, names, row, other)
        return DoesNotFit(f"a unique key of {node.info.name} is taken", where=self.where)

    def _clashing(self, node: Node, names: tuple[str, ...], row: Written, other: str) -> DoesNotFit:
        mine = show([row.values[i] for i in node.places(node.key)])
        return DoesNotFit(
            f"{node.info.name} {mine} and {other} have the same {', '.join(names)}, "
            "which is unique",
            key=row.block.id,
            path=row.path,
            where=self.where,
            hint="nothing was changed; correct one of the two and run again",
        )

    def _holder(
        self, connection: Connection, node: Node, names: tuple[str, ...], row: Written
    ) -> str | None:
        """The key of another row that holds the same unique values."""
        where = [
            node.table.c[name] == bind(codec, row.values[node.at[name]])
            for name, codec in zip(names, node.codecs_of(names), strict=True)
        ]
        columns = [node.table.c[name] for name in node.key]
        codecs = node.codecs_of(node.key)
        for found in connection.execute(sa.select(*columns).where(*where)):
            key = [_decode(codec, x) for codec, x in zip(codecs, found, strict=True)]
            if form(key) != row.key:
                return show(key)
        return None


def exact(node: Node) -> bool:
    """Whether a condition on a row's key is sure to find no other row of SQLite: the index over it
    may tell more apart than the collation of a column does."""
    return all(codec.family for codec in node.codecs_of(node.key))


class _Undo(Exception):
    pass


class _Clash(DoesNotFit):
    """A unique key was taken; which one is found out after the transaction is undone."""

    def __init__(self, node: Node, rows: list[Written]) -> None:
        super().__init__(f"a unique key of {node.info.name} is taken")
        self.node = node
        self.rows = rows


class _Taken(_Clash):
    """A unique key of a new root was taken: its own by somebody who was faster, or another."""


def amended(record: Record, set: Mapping[str, Value], append: Mapping[str, Value]) -> Record | None:
    """A record with fields set and elements added; None where there is no list to add to."""
    made = {**record, **{name: _plain(value) for name, value in set.items()}}
    for name, item in append.items():
        there = made.get(name)
        if type(there) is not list:
            return None
        made[name] = [*there, _plain(item)]
    return made


def _decode(codec: Any, raw: Any) -> Any:
    return raw if codec.decode is None or raw is None else codec.decode(raw)


def _plain(value: Any) -> Any:
    """The value as a table gives it back: a reference as its bare id."""
    from migrator.model.value import Ref

    if type(value) is Ref:
        return value.id
    if type(value) is dict:
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if type(value) is list else value


__all__ = ["Writer", "amended", "exact"]
