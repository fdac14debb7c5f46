"""The Redis store."""

from __future__ import annotations

from migrator.model.move import At
from migrator.ports import ServerInfo, StoreSettings
from migrator.stores.redis import facts, findings
from migrator.stores.redis.collection import RedisCollection
from migrator.stores.redis.settings import servers
from migrator.stores.redis.wire import Wire


class RedisStore:
    """One database of a server, or a cluster."""

    capabilities = facts.CAPABILITIES

    def __init__(self, settings: StoreSettings) -> None:
        self.name = settings.name
        self._servers = servers(settings)
        self._wire = Wire(self._servers, settings.name)

    def ping(self) -> ServerInfo:
        found = [findings.info(self._wire, master) for master in self._wire.masters()]
        versions = sorted({each.get("redis_version", "?") for each in found})
        product = f"Redis cluster of {len(found)} masters" if self._servers.cluster else "Redis"
        return ServerInfo(product, ", ".join(versions), tuple(findings.remarks(found)))

    def collection(self, cls: str, at: At) -> RedisCollection:
        return RedisCollection(self._wire, cls, at)

    def close(self) -> None:
        self._wire.close()
