"""The DynamoDB store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrator.model.move import At
from migrator.ports import ServerInfo, StoreSettings
from migrator.stores.dynamodb import facts
from migrator.stores.dynamodb.collection import ItemCollection
from migrator.stores.dynamodb.gathered_collection import GatheredCollection
from migrator.stores.dynamodb.options import GATHERED, ITEM, SPLIT, options_of
from migrator.stores.dynamodb.settings import connect
from migrator.stores.dynamodb.split import SplitCollection

if TYPE_CHECKING:
    from migrator.ports import Collection


_COLLECTIONS: dict[str, type[ItemCollection | GatheredCollection | SplitCollection]] = {
    ITEM: ItemCollection,
    GATHERED: GatheredCollection,
    SPLIT: SplitCollection,
}


class DynamoStore:
    """The tables of one account in one region."""

    capabilities = facts.CAPABILITIES

    def __init__(self, settings: StoreSettings) -> None:
        self.name = settings.name
        self._wire = connect(settings)

    def ping(self) -> ServerInfo:
        self._wire.call("ListTables", {"Limit": 1}, self.name)
        meta = self._wire.client.meta
        remarks = []
        if "amazonaws.com" not in meta.endpoint_url:
            remarks.append(f"no service of AWS, but {meta.endpoint_url}")
        return ServerInfo("DynamoDB", meta.service_model.api_version, tuple(remarks))

    def collection(self, cls: str, at: At) -> Collection:
        options = options_of(at, facts.DEFAULT_LAYOUT)
        made = _COLLECTIONS[options.layout]
        return made(self.name, self._wire, cls, at, options)

    def close(self) -> None:
        self._wire.close()
