"""Reading in the layout ``entries``, with one decoder: the copier's or the observer's."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from migrator.errors import DamagedBlock, DoesNotFit, Refused
from migrator.model import json_text as codec
from migrator.model.block import Block, has_ended, name
from migrator.model.move import At
from migrator.model.rules import Entries
from migrator.model.value import Value
from migrator.ports import Json, Page
from migrator.stores.sql.entries_schema import EntryTables

if TYPE_CHECKING:
    from migrator.stores.sql.store import SqlStore

PAGE_BYTES = 16_000_000
CHUNK = 500
_FIRST = 32


class EntriesReader:
    """The blocks of one collection, read from its two tables in one snapshot each time."""

    def __init__(self, store: SqlStore, cls: str, at: At, load: codec.Load) -> None:
        self.store = store
        self.database = store.database
        self.cls = cls
        self.at = at
        self.where = str(at)
        self.tables = EntryTables(store.database.dialect, at.collection, self.where)
        self._load = load
        self._binary = store.database.dialect == "mysql"

    def column(self, key: Value) -> str | bytes:
        """A key or path as its column holds it; VARBINARY is bytes to the driver."""
        try:
            text = codec.to_text(key)
        except codec.UNFIT as error:
            raise DoesNotFit(f"the key can't be held: {error}", key=key, where=self.where) from None
        return text.encode() if self._binary else text

    @staticmethod
    def text(column: str | bytes) -> str:
        """What a column of a key or path holds, as text."""
        return column.decode() if isinstance(column, bytes) else column

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        blocks = self.tables.blocks.c
        page = Page([], None)
        seen = 0
        with self.database.reading(self.where) as connection:
            while seen < limit:
                # As many as the bytes of a page leave room for, by the size of those before.
                room = (PAGE_BYTES - page.bytes) * seen // page.bytes if page.bytes else _FIRST
                wanted = min(limit - seen, max(1, room))
                heads = connection.execute(
                    sa.select(blocks.block, blocks.expires)
                    .where(*self._between(range_, position))
                    .order_by(blocks.block)
                    .limit(wanted)
                ).all()
                if heads:
                    column = self.tables.entries.c.block
                    within = sa.and_(column >= heads[0].block, column <= heads[-1].block)
                    self._gather(connection, heads, within, page)
                if len(heads) < wanted:
                    return page
                seen += len(heads)
                position = self.text(heads[-1].block)
                if page.bytes >= PAGE_BYTES:
                    break
        page.next = position
        return page

    def _between(self, range_: Json, position: Json) -> list[sa.ColumnElement[bool]]:
        if not isinstance(range_, list) or len(range_) != 2:
            raise Refused("a range of another kind of store", where=self.where, hint="plan again")
        low, high = (None if bound is None else str(bound) for bound in range_)
        low = low if position is None else str(position)
        column = self.tables.blocks.c.block
        conditions = []
        if low is not None:
            conditions.append(column > (low.encode() if self._binary else low))
        if high is not None:
            conditions.append(column <= (high.encode() if self._binary else high))
        return conditions

    def _gather(
        self,
        connection: Connection,
        heads: Sequence[Any],
        which: sa.ColumnElement[bool],
        page: Page,
    ) -> None:
        """Add the blocks of some rows of the block table, in their order, to a page."""
        table = self.tables.entries.c
        found: dict[str, Entries] = {self.text(head.block): {} for head in heads}
        wrong: dict[str, str] = {}
        for block, entry, value, tags in connection.execute(
            sa.select(table.block, table.entry, table.value, table.tags).where(which)
        ):
            of = self.text(block)
            entries = found.get(of)
            if entries is None:
                continue  # entries without the row of their block are no block
            try:
                self._put(entries, entry, value, tags)
            except ValueError as error:
                wrong[of] = str(error)
            page.bytes += len(value)
        for head in heads:
            of = self.text(head.block)
            try:
                id = codec.from_text(of, self._load)
            except Exception as error:  # noqa: BLE001 - whatever foreign text provokes
                page.damaged.append((of, f"its key: {error}"))
                continue
            if not found[of]:
                wrong.setdefault(of, "it has no entries")
            if of in wrong:
                page.damaged.append((id, wrong[of]))
            else:
                page.blocks.append(Block(id, found[of], head.expires))

    def _put(self, entries: Entries, entry: str | bytes, value: str, tags: str | None) -> None:
        """Add an entry. Raises ValueError, naming it, for what can't be read."""
        text = self.text(entry)
        try:
            path = codec.from_text(text, self._load)
            if not isinstance(path, str):
                raise TypeError("it is no access path")
            entries[path] = self._load(value, tags)
        except Exception as error:  # noqa: BLE001 - whatever foreign text provokes
            raise ValueError(f"entry {text}: {error}") from None

    def keys(self, range_: Json, position: Json, limit: int) -> tuple[list[Value], Json]:
        column = self.tables.blocks.c.block
        with self.database.reading(self.where) as connection:
            found = connection.scalars(
                sa.select(column)
                .where(*self._between(range_, position))
                .order_by(column)
                .limit(limit)
            ).all()
        texts = [self.text(block) for block in found]
        ids = [codec.from_text(text, self._load) for text in texts]
        return ids, texts[-1] if len(texts) == limit else None

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        columns = [self.column(id) for id in ids]
        distinct = list(dict.fromkeys(columns))
        found: dict[str | bytes, Block] = {}
        blocks = self.tables.blocks.c
        with self.database.reading(self.where, by_key=True) as connection:
            for start in range(0, len(distinct), CHUNK):
                chunk = distinct[start : start + CHUNK]
                heads = connection.execute(
                    sa.select(blocks.block, blocks.expires).where(blocks.block.in_(chunk))
                ).all()
                page = Page([], None)
                self._gather(connection, heads, self.tables.entries.c.block.in_(chunk), page)
                for id, reason in page.damaged:
                    raise self._unreadable(id, reason)
                found.update((self.column(block.id), block) for block in page.blocks)
        return [found.get(column) for column in columns]

    def read_entries(self, id: Value, paths: Sequence[str]) -> Entries | None:
        table, blocks = self.tables.entries.c, self.tables.blocks.c
        column = self.column(id)
        entries: Entries = {}
        with self.database.reading(self.where, by_key=True) as connection:
            there = sa.select(blocks.expires).where(blocks.block == column)
            row = connection.execute(there).first()
            if row is None or has_ended(row.expires, time.time()):
                return None
            for start in range(0, len(paths), CHUNK):
                chunk = [self.column(path) for path in paths[start : start + CHUNK]]
                for entry, value, tags in connection.execute(
                    sa.select(table.entry, table.value, table.tags).where(
                        table.block == column, table.entry.in_(chunk)
                    )
                ):
                    try:
                        self._put(entries, entry, value, tags)
                    except ValueError as error:
                        raise self._unreadable(id, str(error)) from None
        return entries

    def _unreadable(self, id: Value, reason: str) -> DamagedBlock:
        return DamagedBlock(
            f"{name(self.cls, id)} can't be read: {reason}",
            where=self.where,
            hint="somebody else wrote to its tables; restore the block or delete it",
        )
