"""The journals and fences of both layouts on MariaDB and MySQL: which tables, and how keys read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migrator.model import json_text
from migrator.model.value import Value
from migrator.outbox import Link, Table
from migrator.stores.sql.fence_mysql import MysqlFence
from migrator.stores.sql.findings import actions
from migrator.stores.sql.journal_mysql import MysqlJournal, Watched
from migrator.stores.sql.keys import id_of
from migrator.stores.sql.linked import linked

if TYPE_CHECKING:
    from migrator.journal import Fence
    from migrator.stores.sql.entries import EntriesCollection
    from migrator.stores.sql.tables import TablesCollection


def tables_journal(collection: TablesCollection, run: str) -> MysqlJournal:
    """The binary log for the layout ``tables``."""

    def watched() -> Watched:
        root = collection.root
        codecs = root.codecs_of(root.key)

        def decode(key: tuple[Any, ...]) -> Value:
            pairs = zip(codecs, key, strict=True)
            return id_of(tuple(c.decode(raw) if c.decode else raw for c, raw in pairs))

        return Watched(
            [linked(node, root) for node in root.walk()],
            {node.info.name: node.info.key or node.parent or node.key for node in root.walk()},
            [codec.column.base for codec in codecs],
            [int((codec.column.args or (1,))[0]) for codec in codecs],
            decode,
            [
                text
                for node in root.walk()
                for severity, _, text in actions(node, root)
                if severity == "error"
            ],
        )

    return MysqlJournal(
        collection.database, collection.store.settings, collection.where, run, watched
    )


def tables_fence(collection: TablesCollection, run: str) -> Fence:
    """The fence of the layout ``tables``."""

    def names() -> list[str]:
        return sorted({node.info.name for node in collection.root.walk()})

    return MysqlFence(tables_journal(collection, run), names)


def entries_journal(collection: EntriesCollection, run: str) -> MysqlJournal:
    """The binary log for the layout ``entries``."""
    blocks, entries = collection.tables.blocks.name, collection.tables.entries.name
    key = ("block",)

    def decode(key: tuple[Any, ...]) -> Value:
        return json_text.from_text(key[0].decode(), json_text.load)

    watched = Watched(
        [Table(blocks, key), Table(entries, key, [Link(key, blocks, key)])],
        {blocks: key, entries: ("block", "entry")},
        ["varbinary"],
        [0],
        decode,
    )
    return MysqlJournal(
        collection.database, collection.store.settings, collection.where, run, lambda: watched
    )


def entries_fence(collection: EntriesCollection, run: str) -> Fence:
    """The fence of the layout ``entries``."""
    names = [collection.tables.blocks.name, collection.tables.entries.name]
    return MysqlFence(entries_journal(collection, run), lambda: names)
