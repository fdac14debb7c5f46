"""Cassandra: rows of typed columns, partitions of entries, and tables made for queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrator.errors import Terminal
from migrator.ports import StoreSettings

if TYPE_CHECKING:
    from migrator.stores.cassandra.store import CassandraStore


def open_store(settings: StoreSettings) -> CassandraStore:
    """Open a store for ``cassandra://host:9042,host/keyspace``.

    Raises Refused for settings that are wrong, Terminal where the driver is missing. Nothing
    is connected before the first request.
    """
    try:
        import cassandra.cluster  # noqa: F401
    except ImportError as error:
        raise Terminal(
            "the driver for Cassandra is not installed",
            where=f"store {settings.name}",
            hint="pip install migrator[cassandra]",
        ) from error
    from migrator.stores.cassandra.store import CassandraStore

    return CassandraStore(settings)


__all__ = ["open_store"]
