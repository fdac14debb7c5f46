"""One aggregate into tables of SQLite, by the driver itself.

Within a process the steps around a statement take longer than it does. So rows are compared as the
file holds them: what a column encodes reads back equal, so a row that lies there as it would be
sent stays. Whatever is not so plain (rows that hang deeper than a level, a clash, text that is no
UTF-8) is undone, and done by ``Writer``, which also finds the words for what is refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from migrator.errors import DoesNotFit
from migrator.exchange import Change, is_still, made_of
from migrator.model.block import Block
from migrator.model.rules import assemble
from migrator.model.value import Value
from migrator.stores.sql.amend_sqlite import Fields
from migrator.stores.sql.rows import picker
from migrator.stores.sql.shape import Node
from migrator.stores.sql.unfold import Later, Unfolded, Written, unfold
from migrator.stores.sql.upsert import texts_of
from migrator.stores.sql.write import Writer, amended, exact

if TYPE_CHECKING:
    from migrator.stores.sql.tables import TablesCollection

Raw: TypeAlias = Sequence[Any]


@dataclass(frozen=True)
class _Part:
    """The statements of one table: ``select`` takes the root's key, ``insert`` and ``upsert`` the
    columns that ``sent`` picks, ``update`` those that ``changed`` does, ``delete`` a row's key."""

    node: Node
    select: str
    asked: Callable[[Raw], Raw]
    key: Callable[[Raw], Raw]
    sent: Callable[[Raw], Raw]
    insert: str
    upsert: str
    update: str
    changed: Callable[[Raw], Raw]
    delete: str


class _NotSo(Exception):
    """What lies there, or is to lie there, is for ``Writer``."""


class SqliteWriter(Writer):
    """Writes the blocks of one collection in a file of SQLite."""

    def __init__(self, collection: TablesCollection) -> None:
        super().__init__(collection)
        nodes = list(self.root.walk())
        self._parts = [self._part(node) for node in nodes] if self._is_plain(nodes) else None
        self._fields = self._few(nodes) if self._parts and exact(self.root) else None

    def _is_plain(self, nodes: Sequence[Node]) -> bool:
        return self._enforce and all(
            node.key
            and not any(codec.column.generated is not None for codec in node.codecs)
            and not any(key.table == node.info.name for key in node.info.foreign)
            and (node.up is None or (node.up is self.root and self._by_key(node)))
            for node in nodes
        )

    def _by_key(self, node: Node) -> bool:
        return not node.joined and set(node.refs) <= set(self.root.key)

    def _part(self, node: Node) -> _Part:
        engine = self.collection.database.engine
        quote = engine.dialect.identifier_preparer.quote_identifier
        table = quote(node.info.name)
        columns = ", ".join(quote(codec.name) for codec in node.codecs)
        of, asked = (node.key, node.key) if node.up is None else (node.parent, node.refs)
        texts = texts_of(engine, "sqlite", node)
        # An upsert fires an outbox's triggers twice: those before an insert, too.
        update = texts.update if exact(node) else ""
        return _Part(
            node,
            f"SELECT {columns} FROM {table} WHERE {_equal(quote, of)}",  # noqa: S608
            picker([self.root.key.index(name) for name in asked]),
            picker(node.places(node.key)),
            picker(texts.places),
            texts.row,
            f"{texts.row}{texts.tail}",
            update or f"{texts.row}{texts.tail}",
            picker(texts.updated if update else texts.places),
            f"DELETE FROM {table} WHERE {_equal(quote, node.key)}",  # noqa: S608
        )

    def _few(self, nodes: Sequence[Node]) -> Fields:
        engine = self.collection.database.engine
        texts = {node: texts_of(engine, "sqlite", node) for node in nodes}
        quote = engine.dialect.identifier_preparer.quote_identifier
        return Fields(self.root, texts, quote, self.where)

    # ------------------------------------------------------------------ the writes

    def _put_alone(self, id: Value, unfolded: Later) -> None:
        rows = unfolded()
        if self._parts is None or rows.doubtful or not self._tried(self._replace, rows):
            super()._put_alone(id, unfolded)

    def exchange(self, id: Value, held: Block | None, change: Change) -> bool:
        if self._parts is not None and change is not None and held is not None:
            done = self._tried(self._changed, id, held, change)
            if done is not None:
                return done
        return super().exchange(id, held, change)

    def amend(
        self, id: Value, set: Mapping[str, Value], append: Mapping[str, Value]
    ) -> Block | None:
        after: list[Block] = []

        def change(raw: sqlite3.Connection) -> bool:
            there = self.collection.read_raw(raw, id)
            if there is None:
                return False
            if (block := self._set_some(raw, there, set, append)) is not None:
                after.append(block)
                return True
            made = self._amended(there, id, set, append)
            if made is None:
                return False
            if made[1].doubtful:
                raise _NotSo
            after.append(made[0])
            return self._replace(raw, made[1])

        try:
            done = None if self._parts is None else self._tried(change)
        except DoesNotFit:
            return None
        if done is None:
            return super().amend(id, set, append)
        return after[0] if done else None

    def _set_some(
        self,
        raw: sqlite3.Connection,
        there: Block,
        set: Mapping[str, Value],
        append: Mapping[str, Value],
    ) -> Block | None:
        """As ``amend``, where no more than single rows are changed; else None, and none is."""
        collection, record = self.collection, assemble(there.entries)
        key = collection.encoded_key(there.id)
        if self._fields is None or key is None:
            return None
        asked = self._fields.statements(there.id, key, record, set, append)
        after = None if asked is None else amended(record, set, append)
        if asked is None or after is None:
            return None
        try:
            for text, given in asked:
                raw.execute(text, given)
        except (sqlite3.IntegrityError, sqlite3.OperationalError):
            raise _NotSo from None
        return Block(there.id, collection.rules.partition(after))

    def _tried(self, do: Callable[..., bool], *given: Any) -> bool | None:
        """What was done in one transaction; None where nothing was, and ``Writer`` has to."""
        try:
            with self.collection.database.changing(self.where) as raw:
                return do(raw, *given)
        except _NotSo:
            return None

    def _changed(self, raw: sqlite3.Connection, id: Value, held: Block, change: Any) -> bool:
        there = self.collection.read_raw(raw, id)
        if there is None or not is_still(there, held):
            return False
        unfolded = unfold(self.root, [made_of(there, change)], self.where)
        if unfolded.doubtful:
            raise _NotSo
        return self._replace(raw, unfolded)

    def _replace(self, raw: sqlite3.Connection, unfolded: Unfolded) -> bool:
        """Change what differs: deletions children first, changes parents first."""
        try:
            changes = list(self._changes(raw, unfolded))
            for part, _, differ in reversed(changes):
                if differ.gone:
                    raw.executemany(part.delete, differ.gone)
            for part, text, differ in changes:
                if differ.fresh:
                    raw.executemany(text, [part.sent(row.raw) for row in differ.fresh])
                if differ.changed:
                    raw.executemany(part.update, [part.changed(row.raw) for row in differ.changed])
        except (sqlite3.IntegrityError, sqlite3.OperationalError):
            # A clash, a fence, a text that is no UTF-8: told where it is tried again.
            raise _NotSo from None
        return True

    def _changes(
        self, raw: sqlite3.Connection, unfolded: Unfolded
    ) -> Iterator[tuple[_Part, str, _Differ]]:
        """By table: what puts a row that is not there, and what is to be done."""
        assert self._parts is not None
        root, *below = self._parts
        (row,) = unfolded.rows[self.root]
        key = root.key(row.raw)
        held = raw.execute(root.select, key).fetchall()
        if held and (len(held) > 1 or not _same(root.key(held[0]), key)):
            raise _NotSo  # to the collation it is the key of another block
        yield root, root.insert, _differing(root, [row], held)
        for part in below:
            # What may lie below a root that is not there is not its own.
            there = raw.execute(part.select, part.asked(key)).fetchall() if held else []
            yield part, part.upsert, _differing(part, unfolded.rows[part.node], there)


class _Differ(NamedTuple):
    """The rows that are not there, those that lie there otherwise, the keys of those to go."""

    fresh: list[Written]
    changed: list[Written]
    gone: list[Raw]


def _differing(part: _Part, rows: list[Written], held: list[Raw]) -> _Differ:
    there = {part.key(row): row for row in held}
    fresh, changed = [], []
    for row in rows:
        old = there.pop(part.key(row.raw), None)
        if old is None:
            fresh.append(row)
        elif not _same(old, row.raw):
            changed.append(row)
    if there and (not exact(part.node) or any(None in key for key in there)):
        raise _NotSo  # no condition finds such a row, or none but it
    return _Differ(fresh, changed, list(there))


def _same(left: Raw, right: Raw) -> bool:
    """Whether two rows lie in a file alike: 1 and 1.0 do not, though they are one key."""
    return tuple(left) == tuple(right) and [*map(type, left)] == [*map(type, right)]


def _equal(quote: Callable[[str], str], names: Sequence[str]) -> str:
    return " AND ".join(f"{quote(name)} = ?" for name in names)
