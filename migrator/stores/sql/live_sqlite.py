"""The outboxes of both layouts on SQLite: which tables there are, and how keys are read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from migrator.model import json_text
from migrator.model.value import Value
from migrator.outbox import FileNote, Link, OutboxFence, OutboxJournal, Table, Watched
from migrator.stores.sql.keys import id_of
from migrator.stores.sql.linked import linked

if TYPE_CHECKING:
    from migrator.journal import Fence, Journal
    from migrator.stores.sql.engine import Database
    from migrator.stores.sql.entries import EntriesCollection
    from migrator.stores.sql.tables import TablesCollection


class _File:
    """The database as the outbox sees it."""

    def __init__(self, database: Database, where: str) -> None:
        self.database = database
        self.where = where

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        with self.database.reading(self.where) as connection:
            yield _raw(connection)

    @contextmanager
    def writing(self, seconds: float | None = None) -> Iterator[sqlite3.Connection]:
        with self.database.writing(self.where, patience=seconds) as connection:
            yield _raw(connection)


def _raw(connection: Any) -> sqlite3.Connection:
    found: sqlite3.Connection = connection.connection.driver_connection
    return found


def note(database: Database, where: str, name: str) -> FileNote:
    """A note in the same file."""
    return FileNote(_File(database, where), name)


def tables_journal(collection: TablesCollection, run: str) -> Journal:
    """The outbox of the layout ``tables``."""

    def watched() -> Watched:
        root = collection.root
        codecs = root.codecs_of(root.key)

        def decode(key: tuple[Any, ...]) -> Value:
            pairs = zip(codecs, key, strict=True)
            return id_of(tuple(c.decode(raw) if c.decode else raw for c, raw in pairs))

        return Watched([linked(node, root) for node in root.walk()], decode)

    return OutboxJournal(_File(collection.database, collection.where), run, watched)


def tables_fence(collection: TablesCollection, run: str) -> Fence:
    """The fence of the layout ``tables``."""

    def names() -> list[str]:
        return sorted({node.info.name for node in collection.root.walk()})

    return OutboxFence(_File(collection.database, collection.where), run, names)


def entries_journal(collection: EntriesCollection, run: str) -> Journal:
    """The outbox of the layout ``entries``."""
    blocks, entries = collection.tables.blocks.name, collection.tables.entries.name
    tables = [
        Table(blocks, ("block",)),
        Table(entries, ("block",), [Link(("block",), blocks, ("block",))]),
    ]

    def decode(key: tuple[Any, ...]) -> Value:
        return json_text.from_text(key[0], json_text.load)

    file = _File(collection.database, collection.where)
    return OutboxJournal(file, run, lambda: Watched(tables, decode))


def entries_fence(collection: EntriesCollection, run: str) -> Fence:
    """The fence of the layout ``entries``."""
    names = [collection.tables.blocks.name, collection.tables.entries.name]
    return OutboxFence(_File(collection.database, collection.where), run, lambda: names)
