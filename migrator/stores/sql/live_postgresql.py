"""The journals and fences of both layouts on PostgreSQL: which tables, and how keys read."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from sqlalchemy.engine import Connection

from migrator.model import json_text
from migrator.model.move import tables
from migrator.model.value import Value
from migrator.stores.sql.fence_postgresql import PostgresqlFence
from migrator.stores.sql.journal_postgresql import Followed, PostgresqlJournal, lacking, one
from migrator.stores.sql.outbox_postgresql import OutboxJournal
from migrator.stores.sql.shape import Node, on_server, resolve

if TYPE_CHECKING:
    from migrator.stores.sql.entries import EntriesCollection
    from migrator.stores.sql.tables import TablesCollection


AnyJournal: TypeAlias = PostgresqlJournal | OutboxJournal


class OfTables:
    """The tables of the layout ``tables``, whose key is the block's."""

    def __init__(self, collection: TablesCollection) -> None:
        self._collection = collection
        self.database = collection.database
        self.settings = collection.store.settings
        self.where = collection.where

    @property
    def root(self) -> Node:
        return self._collection.root

    def key(self, value: Value) -> Value:
        return value


class OfEntries:
    """The two tables of the layout ``entries``, seen as an aggregate; keys are texts."""

    def __init__(self, collection: EntriesCollection) -> None:
        self._tables = collection.tables
        self.database = collection.database
        self.settings = collection.store.settings
        self.where = collection.where

    @cached_property
    def root(self) -> Node:
        entries = tables(self._tables.entries.name, parent="block")
        spec = tables(self._tables.blocks.name, key="block", entries=entries)
        with self.database.reading(self.where) as connection:
            return resolve(on_server(connection, "postgresql"), spec, self.where)

    def key(self, value: Value) -> Value:
        assert isinstance(value, str)
        return json_text.from_text(value, json_text.load)


def tables_journal(collection: TablesCollection, run: str) -> AnyJournal:
    return _journal(OfTables(collection), run)


def tables_fence(collection: TablesCollection, run: str) -> PostgresqlFence:
    return _fence(OfTables(collection), run)


def entries_journal(collection: EntriesCollection, run: str) -> AnyJournal:
    return _journal(OfEntries(collection), run)


def entries_fence(collection: EntriesCollection, run: str) -> PostgresqlFence:
    return _fence(OfEntries(collection), run)


def _journal(followed: Followed, run: str) -> AnyJournal:
    """The one that was prepared; else a slot, where one can be had."""
    decoding, outbox = PostgresqlJournal(followed, run), OutboxJournal(followed, run)
    with followed.database.reading(followed.where) as c:
        if outbox.identity(c) is not None:
            return outbox
        if one(c, "SELECT 1 FROM pg_replication_slots WHERE slot_name = :n", n=run):
            return decoding
        return outbox if any(lacking(c)) else decoding


def _fence(followed: Followed, run: str) -> PostgresqlFence:
    def emit(c: Connection, mark: str) -> None:
        _journal(followed, run).emit(c, mark)

    return PostgresqlFence(followed, run, emit)
