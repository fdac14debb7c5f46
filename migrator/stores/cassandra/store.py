"""The Cassandra store: one keyspace of a cluster."""

from __future__ import annotations

import os
import threading
import time
from functools import cached_property
from typing import Any

from cassandra.cluster import Cluster

from migrator.errors import Refused, Terminal
from migrator.model.move import At
from migrator.ports import Collection, Json, ServerInfo, StoreSettings
from migrator.stores.cassandra import facts
from migrator.stores.cassandra.edge import edge
from migrator.stores.cassandra.entries import EntriesCollection
from migrator.stores.cassandra.ring import pieces
from migrator.stores.cassandra.settings import contact
from migrator.stores.cassandra.table import TableCollection
from migrator.stores.cassandra.table_wire import Bytes, RawHandler, Wire

_SETTINGS = "SELECT name, value FROM system_views.settings WHERE name IN (?, ?)"
# Cells count the seconds of their expiry in 32 bits: until 2038, and in new formats until 2106.
_SIGNED, _UNSIGNED = 2_147_483_646_000, 4_294_967_294_000
_CLOCK_EVERY = 30.0


class CassandraStore:
    """Connects when first asked for something; a forked child connects by itself."""

    capabilities = facts.CAPABILITIES

    def __init__(self, settings: StoreSettings) -> None:
        self.name = settings.name
        self._contact = contact(settings)
        self.keyspace = self._contact.keyspace
        self._lock = threading.RLock()
        self._cluster: Any = None
        self._wire: Wire | None = None
        self._pid = os.getpid()
        self._stamp = 0
        # By how much the cluster's clock is ahead of the one since boot, and when it was asked.
        self._ahead, self._asked = 0.0, float("-inf")

    @property
    def where(self) -> str:
        return f"store {self.name}"

    # ------------------------------------------------------------ connecting

    @property
    def wire(self) -> Wire:
        """What statements are sent by. Raises Transient or Terminal where nothing answers."""
        with self._lock:
            if self._pid != os.getpid():
                # The parent's threads and sockets are not this process's to end.
                self._cluster = self._wire = None
                self._pid = os.getpid()
            if self._wire is None:
                with edge(self.where):
                    cluster = Cluster(**self._contact.cluster)
                    try:
                        session = cluster.connect()
                    except BaseException:
                        cluster.shutdown()
                        raise
                session.client_protocol_handler = RawHandler
                self._cluster, self._wire = cluster, Wire(session, self.where)
                self._find_keyspace(self._wire)
            return self._wire

    def _find_keyspace(self, wire: Wire) -> None:
        query = "SELECT keyspace_name FROM system_schema.keyspaces WHERE keyspace_name = ?"
        if list(wire.rows(query, [self.keyspace.encode()])):
            return
        if not self._contact.replication:
            raise Terminal(
                f"there is no keyspace {self.keyspace}",
                where=self.where,
                hint="make it, or say how in the store's option replication",
            )
        shown = ", ".join(
            f"{_text(name)}: {_text(value)}" for name, value in self._contact.replication.items()
        )
        wire.define(
            f'CREATE KEYSPACE IF NOT EXISTS "{self.keyspace}" WITH replication = {{{shown}}}'
        )

    def ping(self) -> ServerInfo:
        wire = self.wire
        version = b"".join(
            x or b"" for (x,) in wire.rows("SELECT release_version FROM system.local")
        )
        return ServerInfo("Cassandra", version.decode(), tuple(self._remarks(wire)))

    def _remarks(self, wire: Wire) -> list[str]:
        """What this cluster can't promise (R7)."""
        remarks = []
        if self._config(wire).get(b"commitlog_sync") == b"periodic":
            remarks.append(
                "commitlog_sync is periodic: a node that is killed loses the last acknowledged "
                "writes; only other replicas have them"
            )
        replication = self._cluster.metadata.keyspaces.get(self.keyspace)
        strategy = getattr(replication, "replication_strategy", None)
        if getattr(strategy, "replication_factor", None) == 1:
            remarks.append("replication factor 1: a node that is lost takes its data along")
        if self._contact.consistency in ("ONE", "LOCAL_ONE"):
            remarks.append(
                f"consistency {self._contact.consistency}: a read may miss acknowledged writes"
            )
        return remarks

    def _config(self, wire: Wire) -> dict[Bytes, Bytes]:
        """Some of a node's configuration; nothing where it can't be asked for."""
        try:
            names = [b"commitlog_sync", b"storage_compatibility_mode"]
            return dict(wire.rows(_SETTINGS, names))  # type: ignore[arg-type]
        except Terminal:
            return {}  # older servers have no such table, or the role no right to it

    # ------------------------------------------------------------ what layouts need of it

    @cached_property
    def latest_expiry(self) -> int:
        """The last deadline that cells can have, in milliseconds since 1970."""
        mode = self._config(self.wire).get(b"storage_compatibility_mode")
        return _UNSIGNED if mode == b"NONE" else _SIGNED

    @cached_property
    def tells_elements(self) -> bool:
        """Whether the server tells how long single elements of a collection live: Cassandra 5."""
        version = self.ping().version
        return version.split(".")[0].isdigit() and int(version.split(".")[0]) >= 5

    def stamp(self) -> int:
        """Microseconds since 1970, later than any that was given before (R10)."""
        with self._lock:
            self._stamp = max(time.time_ns() // 1000, self._stamp + 1)
            return self._stamp

    def cluster_time(self) -> float:
        """Seconds since 1970 by the cluster's clock, which is asked now and then."""
        here = time.clock_gettime(time.CLOCK_BOOTTIME)
        if here - self._asked > _CLOCK_EVERY:
            ((held,),) = self.wire.few("SELECT toUnixTimestamp(now()) FROM system.local")
            here = time.clock_gettime(time.CLOCK_BOOTTIME)
            self._ahead = int.from_bytes(held or b"", "big") / 1000 - here
            self._asked = here
        return here + self._ahead

    def split(self, table: str, parts: int) -> list[Json]:
        """About so many token ranges that cover the ring."""
        self.wire  # noqa: B018 - connects
        metadata = self._cluster.metadata
        if not str(metadata.partitioner).endswith("Murmur3Partitioner"):
            raise Refused(
                f"the partitioner {metadata.partitioner} is not supported",
                where=self.where,
                hint="only Murmur3Partitioner, the default, orders keys as this store reads them",
            )
        ring = metadata.token_map.ring if metadata.token_map else []
        return pieces([int(token.value) for token in ring], parts)

    def collection(self, cls: str, at: At) -> Collection:
        name = at.layout.name if at.layout else facts.DEFAULT_LAYOUT
        if at.tables is not None or name not in facts.LAYOUTS:
            raise Refused(
                f"{at}: Cassandra has no layout {name!r}",
                hint=f"choose one of: {', '.join(facts.LAYOUTS)}",
            )
        kind = TableCollection if name == "table" else EntriesCollection
        return kind(self, cls, at)

    def close(self) -> None:
        with self._lock:
            if self._cluster is not None and self._pid == os.getpid():
                self._cluster.shutdown()
            self._cluster = self._wire = None


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
