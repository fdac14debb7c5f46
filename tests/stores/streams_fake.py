"""What the service does with shards and no emulator does, scripted: at the edge of boto3's clients.

One table with the key ``id`` and its stream. Requests are answered before they are sent.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from botocore.awsrequest import AWSResponse

from migrator.model.move import At, Layout
from migrator.ports import Store, StoreSettings
from migrator.stores import dynamodb
from migrator.stores.dynamodb.collection import ItemCollection

URL = "dynamodb://127.0.0.1:9?region=eu-west-1"  # nothing listens there
_numbers = itertools.count(1)
_services: dict[str, Service] = {}
_ALL = 1 << 32
_LISTED = 3


@dataclass
class Shard:
    """A shard and the share of the hashes that it is for."""

    id: str
    low: int
    high: int
    parent: str | None
    records: list[dict[str, Any]] = field(default_factory=list)
    closed: bool = False
    trimmed: int = 0
    """How many of its first records are gone."""
    hidden: bool = False
    """It is there, and not listed."""
    stalled: bool = False
    """What it has is not shown for now."""


class Error(Exception):
    """An answer of the service by its name."""


class Service:
    """One table, its items and its stream. ``log`` holds each operation with its request."""

    def __init__(self, shards: int = 1, view: str | None = None) -> None:
        self.name = f"games-{next(_numbers):06}"
        self.table = f"arn:aws:dynamodb:eu-west-1:1:table/{self.name}"
        _services[self.name] = self
        self.items: dict[str, Any] = {}
        self.tags: dict[str, str] = {}
        self.shards: dict[str, Shard] = {}
        self.view: str | None = None
        self.made = 0
        self.log: list[tuple[str, Any]] = []
        self.denied: set[str] = set()
        self.throttled = 0
        self.page = 7
        self._first = shards
        self._number = 0
        self._iterators: dict[str, tuple[str, int]] = {}
        self._lock = threading.RLock()
        if view is not None:
            self._turn_on(view)

    # ------------------------------------------------------------ what happens there

    def write(self, key: str, *, removed: bool = False) -> None:
        """A write that is acknowledged."""
        item = {"id": {"S": key}, "v": {"N": str(self._number)}}
        self._write(item, removed=removed)

    def _write(self, item: dict[str, Any], *, removed: bool = False) -> None:
        key = item["id"]["S"]
        old = self.items.pop(key, None)
        if not removed:
            self.items[key] = item
        elif old is None:
            return
        if self.view is None:
            return
        name = "REMOVE" if removed else "INSERT" if old is None else "MODIFY"
        self._number += 1
        told: dict[str, Any] = {
            "Keys": {"id": item["id"]},
            "SequenceNumber": str(100 + self._number),
            "ApproximateCreationDateTime": int(time.time()),
        }
        if "NEW_AND_OLD" in self.view:
            told |= {"NewImage": item} if not removed else {}
            told |= {"OldImage": old} if old is not None else {}
        self.leaf(key).records.append({"eventName": name, "dynamodb": told})

    def leaf(self, key: str) -> Shard:
        """The shard that takes the writes of a key now."""
        at = zlib.crc32(key.encode())
        for shard in self.shards.values():
            if not shard.closed and shard.low <= at < shard.high:
                return shard
        raise AssertionError("no shard takes it")

    @property
    def open(self) -> list[Shard]:
        return [shard for shard in self.shards.values() if not shard.closed]

    def split(self, shard: Shard) -> list[Shard]:
        """Close a shard; two follow it."""
        middle = (shard.low + shard.high) // 2
        return [self._after(shard, shard.low, middle), self._after(shard, middle, shard.high)]

    def roll(self, shard: Shard) -> Shard:
        """Close a shard; one follows it."""
        return self._after(shard, shard.low, shard.high)

    def _after(self, shard: Shard, low: int, high: int) -> Shard:
        shard.closed = True
        return self._new(low, high, shard.id)

    def _new(self, low: int, high: int, parent: str | None) -> Shard:
        shard = Shard(f"shard-{len(self.shards):04}", low, high, parent)
        self.shards[shard.id] = shard
        return shard

    def forget(self, shard: Shard) -> None:
        """A day has passed: the shard is gone with all that was in it."""
        del self.shards[shard.id]

    def expire(self) -> None:
        """Minutes have passed: no iterator is good any more."""
        self._iterators.clear()

    def _turn_on(self, view: str) -> None:
        self.view, self.shards = view, {}
        self.made += 1
        step = _ALL // self._first
        for n in range(self._first):
            self._new(n * step, _ALL if n == self._first - 1 else (n + 1) * step, None)

    @property
    def arn(self) -> str:
        return f"{self.table}/stream/{self.made}"

    # ------------------------------------------------------------ requests

    def asked(self, operation: str) -> list[Any]:
        """The requests of an operation so far."""
        return [request for name, request in self.log if name == operation]

    def answer(self, operation: str, request: Any) -> Any:
        with self._lock:
            self.log.append((operation, request))
            if operation in self.denied:
                raise Error("AccessDeniedException")
            handle: Callable[[Any], Any] = getattr(self, f"_on_{operation}")
            return handle(request) or {}

    def _on_DescribeTable(self, _: Any) -> Any:
        stream = (
            {
                "StreamSpecification": {"StreamEnabled": True, "StreamViewType": self.view},
                "LatestStreamArn": self.arn,
            }
            if self.view
            else {}
        )
        return {"Table": {"TableArn": self.table, "TableStatus": "ACTIVE", **stream}}

    def _on_UpdateTable(self, request: Any) -> None:
        wanted = request["StreamSpecification"]
        if wanted["StreamEnabled"]:
            self._turn_on(wanted["StreamViewType"])
        else:
            self.view = None

    def _on_ListTagsOfResource(self, _: Any) -> Any:
        return {"Tags": [{"Key": key, "Value": value} for key, value in self.tags.items()]}

    def _on_TagResource(self, request: Any) -> None:
        self.tags |= {tag["Key"]: tag["Value"] for tag in request["Tags"]}

    def _on_UntagResource(self, request: Any) -> None:
        for key in request["TagKeys"]:
            self.tags.pop(key, None)

    def _on_BatchWriteItem(self, request: Any) -> None:
        for each in request["RequestItems"][self.name]:
            if "PutRequest" in each:
                self._write(each["PutRequest"]["Item"])
            else:
                self._write(each["DeleteRequest"]["Key"], removed=True)

    def _on_GetItem(self, request: Any) -> Any:
        item = self.items.get(request["Key"]["id"]["S"])
        return {"Item": item} if item is not None else {}

    def _on_Scan(self, _: Any) -> Any:
        return {"Items": list(self.items.values())}

    def _on_ListStreams(self, _: Any) -> Any:
        return {"Streams": []}

    def _on_DescribeStream(self, request: Any) -> Any:
        if request["StreamArn"] != self.arn:
            raise Error("ResourceNotFoundException")
        listed = [shard for shard in self.shards.values() if not shard.hidden]
        names = [shard.id for shard in listed]
        after = request.get("ExclusiveStartShardId")
        start = names.index(after) + 1 if after else 0
        page = listed[start : start + _LISTED]
        told: dict[str, Any] = {"StreamStatus": "ENABLED", "Shards": [*map(_told, page)]}
        if start + _LISTED < len(listed):
            told["LastEvaluatedShardId"] = page[-1].id
        return {"StreamDescription": told}

    def _on_GetShardIterator(self, request: Any) -> Any:
        shard = self._shard(request["ShardId"])
        kind = request["ShardIteratorType"]
        at = len(shard.records) if kind == "LATEST" else shard.trimmed
        if kind == "AFTER_SEQUENCE_NUMBER":
            numbers = [record["dynamodb"]["SequenceNumber"] for record in shard.records]
            at = numbers.index(request["SequenceNumber"]) + 1
            if at <= shard.trimmed:
                raise Error("TrimmedDataAccessException")
        return {"ShardIterator": self._iterator(shard.id, at)}

    def _shard(self, id: str) -> Shard:
        if id not in self.shards:
            raise Error("ResourceNotFoundException")
        return self.shards[id]

    def _iterator(self, shard: str, at: int) -> str:
        name = f"{self.name} {len(self.log)} {shard}"
        self._iterators[name] = shard, at
        return name

    def _on_GetRecords(self, request: Any) -> Any:
        if self.throttled:
            self.throttled -= 1
            raise Error("LimitExceededException")
        if request["ShardIterator"] not in self._iterators:
            raise Error("ExpiredIteratorException")
        id, at = self._iterators[request["ShardIterator"]]
        shard = self._shard(id)
        if at < shard.trimmed:
            raise Error("TrimmedDataAccessException")
        if shard.stalled:
            return {"Records": [], "NextShardIterator": self._iterator(id, at)}
        records = shard.records[at : at + min(request["Limit"], self.page)]
        answer: dict[str, Any] = {"Records": records}
        at += len(records)
        if not (shard.closed and at >= len(shard.records)):
            answer["NextShardIterator"] = self._iterator(id, at)
        return answer

    # ------------------------------------------------------------ the edge

    def collection(self) -> ItemCollection:
        """The table as a store's collection, by clients whose requests come here."""
        at = At("docs", self.name, ["/Game/*"], Layout("item", {"key": "id"}))
        collection = _store().collection("Game", at)
        assert isinstance(collection, ItemCollection)
        return collection


@cache
def _store() -> Store:
    """One for all services: to make the clients takes longer than most tests."""
    store = dynamodb.open_store(StoreSettings("docs", URL))
    at = At("docs", "any", ["/Game/*"], Layout("item", {"key": "id"}))
    collection = store.collection("Game", at)
    assert isinstance(collection, ItemCollection)
    wire = collection._table.wire
    for client in (wire.client, wire.streams.client):
        client.meta.events.register("before-send", _send)
    return store


def _send(request: Any, **_: object) -> AWSResponse:
    operation = request.headers["X-Amz-Target"].decode().partition(".")[2]
    body = request.body.decode()
    service = next(each for name, each in _services.items() if name in body)
    status, answer = 200, b"{}"
    try:
        answer = json.dumps(service.answer(operation, json.loads(body))).encode()
    except Error as error:
        status, answer = 400, json.dumps({"__type": f"x#{error}", "message": "no"}).encode()
    return AWSResponse(request.url, status, {}, _Raw(answer))


def _told(shard: Shard) -> dict[str, Any]:
    numbers = {"StartingSequenceNumber": "1"}
    if shard.closed:
        numbers["EndingSequenceNumber"] = "999"
    above = {"ParentShardId": shard.parent} if shard.parent else {}
    return {"ShardId": shard.id, "SequenceNumberRange": numbers, **above}


class _Raw:
    """The body of an answer, as botocore reads it."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, **_: object) -> Iterator[bytes]:
        yield self._body
