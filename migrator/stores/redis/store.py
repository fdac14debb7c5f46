"""The Redis store."""

from __future__ import annotations

from migrator.model.move import At
from migrator.ports import ServerInfo, StoreSettings
from migrator.stores.redis import facts
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
        info = self._wire.ask(self._wire.masters()[0], ("INFO", "server"))
        found = dict(line.split(":", 1) for line in info.decode().splitlines() if ":" in line)
        return ServerInfo("Redis", found.get("redis_version", ""), ())

    def collection(self, cls: str, at: At) -> RedisCollection:
        return RedisCollection(self._wire, cls, at)

    def close(self) -> None:
        self._wire.close()
