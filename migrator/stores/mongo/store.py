"""The MongoDB store."""

from __future__ import annotations

import pymongo

from migrator.model.move import At
from migrator.ports import ServerInfo, StoreSettings
from migrator.stores.mongo import facts
from migrator.stores.mongo.collection import MongoCollection
from migrator.stores.mongo.edge import edge
from migrator.stores.mongo.settings import connect

_GOODBYE = 2.0  # seconds for a server to hear that its client goes


class MongoStore:
    """A database of a MongoDB server."""

    capabilities = facts.CAPABILITIES

    def __init__(self, settings: StoreSettings) -> None:
        self.name = settings.name
        self._database = connect(settings)

    def ping(self) -> ServerInfo:
        with edge(self.name):
            hello = self._database.command("hello")
            build = self._database.command("buildInfo")
        remarks = []
        if not hello.get("setName") and hello.get("msg") != "isdbgrid":
            remarks.append("a standalone server: no majority, no change stream, no transactions")
        if hello.get("readOnly") or not hello.get("isWritablePrimary", True):
            remarks.append("it takes no writes")
        other = build.get("secantusVersion")
        product = f"SecantusDB {other}" if other else "MongoDB"
        return ServerInfo(product, str(build.get("version", "")), tuple(remarks))

    def collection(self, cls: str, at: At) -> MongoCollection:
        return MongoCollection(self.name, self._database, cls, at)

    def close(self) -> None:
        # The driver tells the server which sessions end; they also end by themselves.
        with pymongo.timeout(_GOODBYE):
            self._database.client.close()
