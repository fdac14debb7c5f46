"""What a live move needs of the embedded store: the outbox of a collection, and its fence."""

from __future__ import annotations

import sqlite3
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, cast

from migrator.model.value import Value
from migrator.outbox import FileNote, OutboxFence, OutboxJournal, Table, Watched
from migrator.stores.sqlite import codec

if TYPE_CHECKING:
    from migrator.journal import Fence, Journal, Note
    from migrator.stores.sqlite.collection import EntriesCollection


class Live:
    """Beside ``EntriesCollection``."""

    def journal(self, name: str) -> Journal:
        """Its outbox for a run of this name."""
        followed = _Followed(cast("EntriesCollection", self))
        return OutboxJournal(followed, name, followed.watched)

    def fence(self, name: str) -> Fence:
        """Its fence for a run of this name."""
        followed = _Followed(cast("EntriesCollection", self))
        return OutboxFence(followed, name, lambda: [followed.table()])

    def note(self, name: str) -> Note:
        """The note of this name, in the same file."""
        return FileNote(_Followed(cast("EntriesCollection", self)), name)


class _Followed:
    """The collection as the outbox sees it."""

    def __init__(self, collection: EntriesCollection) -> None:
        self.where = collection.where
        self._collection = collection

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._collection.store.snapshot(self.where)

    def writing(self, seconds: float | None = None) -> AbstractContextManager[sqlite3.Connection]:
        store = self._collection.store
        return store.writing(self.where) if seconds is None else store.writing(self.where, seconds)

    def table(self) -> str:
        with self.reading() as connection:
            return self._collection.must(connection)

    def watched(self) -> Watched:
        return Watched([Table(self.table(), ("block",), many=True)], _decode)


def _decode(key: tuple[Any, ...]) -> Value:
    return codec.from_column(key[0], codec.decode)
