"""What a live move needs of Cassandra: the journal that gateways leave, and its reader."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from migrator.errors import DamagedBlock
from migrator.exchange import exchanges_alone
from migrator.model.value import Value

if TYPE_CHECKING:
    from migrator.journal import Brackets, Journal, Note
    from migrator.ports import Collection, Json
    from migrator.stores.cassandra.seen import Pristine
    from migrator.stores.cassandra.table import Node
    from migrator.stores.cassandra.table_wire import Wire


class Live:
    """Beside a collection."""

    _node: Node
    _pristine: Pristine

    def _read_by(self, node: Node) -> Collection:
        """The same blocks, read by another node."""
        raise NotImplementedError

    def journal(self, name: str) -> Journal:
        """The reader's side of the journal of a run of this name: the same each time, since it
        knows of the markers of this process."""
        self._pristine.holds = False  # whoever is followed writes, and deletes
        if name not in self._journals:
            self._journals[name] = self._journal(name)
        return self._journals[name]

    @cached_property
    def _journals(self) -> dict[str, Journal]:
        return {}

    def _journal(self, name: str) -> Journal:
        from migrator.stores.cassandra.journal import CassandraJournal

        mine = cast("Any", self)

        def settle(key: Value) -> None:
            if exchanges_alone(mine):
                # What a transaction began and did not end is carried out by such a read, or never.
                read(self._node.wire.serially(), key)
            read(self._node.wire.strongest(), key)

        def read(wire: Wire, key: Value) -> None:
            with suppress(DamagedBlock):  # who acts on its touch sets it aside
                self._read_by(_Reading(self._node, wire)).read([key])

        return CassandraJournal(self._node, mine.where, name, settle)

    def brackets(self, name: str) -> Brackets:
        """The gateway's side."""
        from migrator.stores.cassandra.journal import CassandraBrackets

        return CassandraBrackets(self._node, cast("Any", self).where, name)

    def note(self, name: str) -> Note:
        """The note of this name, in the same keyspace."""
        from migrator.stores.cassandra.note import CassandraNote

        return CassandraNote(self._node, cast("Any", self).where, name)


class _Reading:
    """A node whose reads are of another strength."""

    def __init__(self, node: Node, wire: Wire) -> None:
        self._node = node
        self.wire = wire

    @property
    def name(self) -> str:
        return self._node.name

    @property
    def keyspace(self) -> str:
        return self._node.keyspace

    @property
    def latest_expiry(self) -> int:
        return self._node.latest_expiry

    @property
    def tells_elements(self) -> bool:
        return self._node.tells_elements

    def stamp(self) -> int:
        return self._node.stamp()

    def cluster_time(self) -> float:
        return self._node.cluster_time()

    def split(self, table: str, parts: int) -> list[Json]:
        return self._node.split(table, parts)
