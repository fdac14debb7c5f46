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
        versions = sorted({findings.version(each) for each in found})
        product = findings.product(found[0])
        if self._servers.cluster:
            product = f"{product} cluster of {len(found)} masters"
        return ServerInfo(product, ", ".join(versions), tuple(findings.remarks(found)))

    def collection(self, cls: str, at: At) -> RedisCollection:
        return RedisCollection(self._wire, cls, at)

    def close(self) -> None:
        self._wire.close()
