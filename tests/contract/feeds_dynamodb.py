"""DynamoDB's lines of the contract of feeds: the stream of a table, in both layouts, on moto."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
from botocore.config import Config

from migrator.model.move import At, Layout
from migrator.ports import Collection, Json, Store, StoreSettings
from migrator.stores import dynamodb
from migrator.testing.feeds import FeedCase, Write
from migrator.testing.feeds.case import RULES
from tests.contract import servers

_OPTIONS = {"item": {"key": "id"}, "item-collection": {"pk": "GAME#{id}", "sk": "{entry}"}}
_HEAD = "."


def client() -> Any:
    """The plain driver, at the emulator that has streams."""
    parts = urlsplit(servers.dynamodb())
    return boto3.client(
        "dynamodb",
        endpoint_url=f"http://{parts.netloc}",
        region_name=parse_qs(parts.query)["region"][0],
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}, max_pool_connections=1),
    )


def open_store(_: object) -> Store:
    return dynamodb.open_store(StoreSettings("docs", servers.dynamodb()))


class DynamoApplication:
    """Writes items by boto3: a game is one of them, whatever the layout."""

    def __init__(self, collection: Collection) -> None:
        self.client = client()
        self.table = collection.at.collection
        layout = collection.at.layout
        self.gathered = layout is not None and layout.name == "item-collection"

    def make(self) -> None:
        pass

    def key(self, key: str, entry: str = _HEAD) -> dict[str, Any]:
        if self.gathered:
            return {"pk": {"S": f"GAME#{key}"}, "sk": {"S": entry}}
        return {"id": {"S": key}}

    def item(self, key: str, number: int) -> dict[str, Any]:
        return {**self.key(key), "v": {"N": str(number)}}

    def put(self, key: str, number: int) -> None:
        self.client.put_item(TableName=self.table, Item=self.item(key, number))

    def fill(self, keys: Sequence[str]) -> None:
        for start in range(0, len(keys), 25):
            puts = [{"PutRequest": {"Item": self.item(key, 1)}} for key in keys[start : start + 25]]
            self.client.batch_write_item(RequestItems={self.table: puts})

    def delete(self, key: str) -> None:
        self.client.delete_item(TableName=self.table, Key=self.key(key))

    def holding(self, key: str) -> None:
        return None

    def writes(self) -> Iterator[Write]:
        do, table = self.client, self.table

        def before() -> None:
            self.put("a", 1)
            self.put("b", 1)

        def set_v(key: str) -> dict[str, Any]:
            return {
                "TableName": table,
                "Key": self.key(key),
                "UpdateExpression": "SET v = v + :n",
                "ExpressionAttributeValues": {":n": {"N": "1"}},
            }

        a = {"a": False}
        yield Write("put", lambda: self.delete("a"), lambda: self.put("a", 1), a)
        yield Write("update", before, lambda: do.update_item(**set_v("a")), a)
        yield Write("delete", before, lambda: self.delete("a"), {"a": True})
        yield Write("delete of nothing", lambda: self.delete("a"), lambda: self.delete("a"), {})

        def again() -> None:
            self.delete("a")
            self.put("a", 2)

        yield Write("delete and put again", before, again, {"a": True})

        def batch() -> None:
            requests = [
                {"DeleteRequest": {"Key": self.key("a")}},
                {"PutRequest": {"Item": self.item("b", 2)}},
            ]
            do.batch_write_item(RequestItems={table: requests})

        yield Write("batch", before, batch, {"a": True, "b": False})

        def together() -> None:
            removal = {"Delete": {"TableName": table, "Key": self.key("a")}}
            do.transact_write_items(TransactItems=[removal, {"Update": set_v("b")}])

        yield Write("transaction", before, together, {"a": True, "b": False})
        if self.gathered:
            entry = {**self.key("a", "rounds[0]"), "n": {"N": "1"}}

            def one_more() -> None:
                do.put_item(TableName=table, Item=entry)

            def one_less() -> None:
                do.delete_item(TableName=table, Key=self.key("a", "rounds[0]"))

            yield Write("put of an entry", before, one_more, a)
            yield Write("delete of an entry", one_more, one_less, a)
            other = {"pk": {"S": "PLAYER#a"}, "sk": {"S": _HEAD}}
            yield Write(
                "another class", before, lambda: do.put_item(TableName=table, Item=other), {}
            )

    def left(self) -> set[str]:
        found = (
            self.client.describe_table(TableName=self.table)["Table"] if self._is_there() else {}
        )
        left = {name for name in found.get("StreamSpecification", {}) if name == "StreamEnabled"}
        if found:
            tags = self.client.list_tags_of_resource(ResourceArn=found["TableArn"])["Tags"]
            left |= {tag["Key"] for tag in tags}
            items = self.client.scan(TableName=self.table)["Items"]
            keys = [str(next(iter(av.values()))) for item in items for av in item.values()]
            left |= {key for key in keys if key.startswith("_migrator")}
        return left

    def _is_there(self) -> bool:
        try:
            self.client.describe_table(TableName=self.table)
        except self.client.exceptions.ResourceNotFoundException:
            return False
        return True

    def close(self) -> None:
        self.client.close()


def _elsewhere(position: Json) -> Json:
    assert isinstance(position, dict)
    return {**position, "stream": f"{position['stream']}0"}


def _case(layout: str) -> FeedCase:
    def at(name: str) -> At:
        return At("docs", f"{servers.namespace()}{name}", RULES, Layout(layout, _OPTIONS[layout]))

    def application(_: Path, collection: Collection) -> DynamoApplication:
        return DynamoApplication(collection)

    return FeedCase("dynamodb", layout, open_store, at, application, elsewhere=_elsewhere)


ITEM, GATHERED = _case("item"), _case("item-collection")
