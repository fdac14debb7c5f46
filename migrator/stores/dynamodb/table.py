"""One table: made and dropped, and its items read and written by the batch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from migrator.errors import Terminal, Transient
from migrator.ports import Json, Statistics
from migrator.stores.dynamodb import markers
from migrator.stores.dynamodb.codec import Av, Item, same_number
from migrator.stores.dynamodb.edge import NOT_FOUND, Condition, Unsupported, code_of
from migrator.stores.dynamodb.options import Options
from migrator.stores.dynamodb.sizes import BATCH_BYTES, BATCH_READS, BATCH_WRITES
from migrator.stores.dynamodb.wire import Answer, Wire, until_done

_WAIT_SECONDS = 600.0
_FIRST_LOOK = 2000


@dataclass(slots=True)
class Write:
    """A whole item to put, as JSON, or a key to delete; ``name`` is how people know it."""

    key: tuple[str, ...]
    request: Mapping[str, Any]
    bytes: int
    name: str


def put(key: tuple[str, ...], item: bytes, name: str) -> Write:
    return Write(key, {"PutRequest": {"Item": msgspec.Raw(item)}}, len(item), name)


def remove(key: tuple[str, ...], at: Item, name: str) -> Write:
    return Write(key, {"DeleteRequest": {"Key": at}}, 100, name)


class Table:
    """A table by its name."""

    def __init__(self, wire: Wire, name: str, options: Options, where: str) -> None:
        self.wire = wire
        self.name = name
        self.where = where
        self.options = options

    # ------------------------------------------------------------ the table itself

    def describe(self) -> Answer | None:
        """What the service says of the table; None where there is none."""
        try:
            found: Answer = self._call("DescribeTable")["Table"]
        except Terminal as error:
            if code_of(error.__cause__) != NOT_FOUND:
                raise
            return None
        return None if found.get("TableStatus") == "DELETING" else found

    def _call(self, operation: str, writing: bool = False, **request: Any) -> Answer:
        return self.wire.call(
            operation, {"TableName": self.name, **request}, self.where, writing=writing
        )

    def create(self) -> None:
        """Create the table as it is declared, and wait until it takes requests."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while not self._created():
            if time.monotonic() > deadline:
                raise self._too_slow("it is not active yet")
        if self.options.expires:
            self._expire(self.options.expires)

    def _created(self) -> bool:
        """Whether the table takes requests; it is created where there is none."""
        try:
            # Its answer is not asked for the state: an emulator says ACTIVE before it is so.
            self._call("CreateTable", writing=True, **self.options.table())
        except Transient as error:
            if code_of(error.__cause__) != "ResourceInUseException":
                raise  # else it is there, or still being deleted
        return self._settled() == "ACTIVE" and self._serves()

    def _serves(self) -> bool:
        """Whether the servers of items know the table; they hear of it after those of tables."""
        try:
            self._call("Scan", ConsistentRead=True, Limit=1)
        except Terminal as error:
            if code_of(error.__cause__) != NOT_FOUND:
                raise
            time.sleep(0.05)
            return False
        return True

    def _expire(self, attribute: str) -> None:
        try:
            found = self._call("DescribeTimeToLive").get("TimeToLiveDescription", {})
            if found.get("TimeToLiveStatus") in ("ENABLED", "ENABLING"):
                return  # a finding tells where it is another attribute
            given = {"Enabled": True, "AttributeName": attribute}
            self._call("UpdateTimeToLive", writing=True, TimeToLiveSpecification=given)
        except Unsupported:
            return  # an emulator: nothing expires there, and a finding says so

    def drop(self) -> None:
        """Delete the table, and wait until it is gone."""
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            try:
                self._call("DeleteTable", writing=True)
            except Transient as error:
                if code_of(error.__cause__) != "ResourceInUseException":
                    raise  # else it is being made or deleted
            except Terminal as error:
                if code_of(error.__cause__) == NOT_FOUND:
                    return
                raise
            if self._settled() is None:
                return
            if time.monotonic() > deadline:
                raise self._too_slow("it is not deleted yet")

    def _settled(self) -> str | None:
        """The state of the table once it is active or gone (None), or after long waiting."""
        pause, found = 0.01, "?"
        deadline = time.monotonic() + _WAIT_SECONDS
        while time.monotonic() < deadline:
            try:
                found = str(self._call("DescribeTable")["Table"]["TableStatus"])
            except Terminal as error:
                if code_of(error.__cause__) != NOT_FOUND:
                    raise
                return None
            if found in ("ACTIVE", "UPDATING"):
                return "ACTIVE"
            time.sleep(pause)
            pause = min(pause * 1.5, 5.0)
        return found

    def _too_slow(self, why: str) -> Transient:
        return Transient(why, where=self.where, hint="look at the table in the console")

    def ask(self, operation: str) -> Answer | None:
        """A description that needs a right of its own; None where it is not given."""
        try:
            return self._call(operation)
        except (Unsupported, Terminal):
            return None

    def statistics(self) -> Statistics:
        """Items and bytes; the service counts them every six hours, and 0 before."""
        found = self.describe() or {}
        items, size = int(found.get("ItemCount", 0)), int(found.get("TableSizeBytes", 0))
        if items and size:
            return Statistics(items, size, exact=False)
        seen, next_, size = self.scan(None, None, _FIRST_LOOK)
        if items > len(seen) > 0:
            return Statistics(items, size * items // len(seen), exact=False)
        return Statistics(len(seen), size if seen else 0, exact=next_ is None)

    # ------------------------------------------------------------ reading

    def scan(
        self, segment: Json, after: Item | None, limit: int, **request: Any
    ) -> tuple[list[Item], Item | None, int]:
        """Items of a segment after a key, consistently read: items, last key, bytes. Markers of
        feeds are no items."""
        request |= {"ConsistentRead": True, "ReturnConsumedCapacity": "TOTAL", "Limit": limit}
        if isinstance(segment, dict) and segment["of"] > 1:
            request |= {"Segment": segment["segment"], "TotalSegments": segment["of"]}
        if after is not None:
            request["ExclusiveStartKey"] = after
        answer = self._call("Scan", **request)
        items = markers.without(answer["Items"], self.options.hash.name)
        return items, answer.get("LastEvaluatedKey"), answer["bytes"]

    def count(self) -> int:
        """All items, counted by a scan."""
        total = 0
        request: dict[str, Any] = {"Select": "COUNT", "ConsistentRead": True} | markers.UNCOUNTED
        while True:
            answer = self._call("Scan", **request)
            total += int(answer["Count"])
            if answer.get("LastEvaluatedKey") is None:
                return total
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def query(self, **request: Any) -> Iterator[tuple[Item, int]]:
        """The items of a partition, consistently read, page after page; each with its bytes."""
        request |= {"ConsistentRead": True, "ReturnConsumedCapacity": "TOTAL"}
        while True:
            answer = self._call("Query", **request)
            share = answer["bytes"] // max(1, len(answer["Items"]))
            for item in answer["Items"]:
                yield item, share
            if answer.get("LastEvaluatedKey") is None:
                return
            request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def get(self, key: Item, **request: Any) -> Item | None:
        """One item as it is now."""
        request |= {"Key": key, "ConsistentRead": True, "ReturnConsumedCapacity": "TOTAL"}
        found: Item | None = self._call("GetItem", **request).get("Item")
        return found

    def get_many(self, keys: Iterable[Item], **request: Any) -> list[Item]:
        """The items of some distinct keys, those that exist, in no order."""
        found: list[Item] = []
        request["ConsistentRead"] = True

        def send(part: Any) -> Any:
            answer = self.wire.call(
                "BatchGetItem",
                {
                    "RequestItems": {self.name: {"Keys": part, **request}},
                    "ReturnConsumedCapacity": "TOTAL",
                },
                self.where,
            )
            found.extend(answer["Responses"].get(self.name, ()))
            left = answer.get("UnprocessedKeys") or {}
            return left.get(self.name, {}).get("Keys")

        for part in _parts(list(keys), BATCH_READS):
            until_done(send, part, lambda rest: f"the reading of {len(rest)} keys", self.where)
        return found

    # ------------------------------------------------------------ writing

    def write_many(self, writes: Sequence[Write]) -> None:
        """Carry out all, in batches; of two for one key the last. Idempotent."""
        distinct = list({write.key: write for write in writes}.values())
        for part in _batches(distinct):
            self._write_batch(part)

    def _write_batch(self, part: list[Write]) -> None:
        def send(requests: Any) -> Any:
            answer = self.wire.call(
                "BatchWriteItem",
                {"RequestItems": {self.name: requests}, "ReturnConsumedCapacity": "TOTAL"},
                self.where,
                key=part[0].name if len(part) == 1 else None,
                writing=True,
            )
            return (answer.get("UnprocessedItems") or {}).get(self.name)

        def left(requests: Any) -> str:
            return f"{len(requests)} of {len(part)} writes ({self._named(part, requests)})"

        until_done(send, [write.request for write in part], left, self.where)

    def _named(self, part: list[Write], requests: list[Any]) -> str:
        """The names of the writes that were not done, as the answer gives them."""
        keys = {write.key: write.name for write in part}
        names = [keys.get(self.key_of(_target(request)), "?") for request in requests]
        return ", ".join(names[:10]) + (" ..." if len(names) > 10 else "")

    def key_of(self, item: Mapping[str, Av]) -> tuple[str, ...]:
        """The key of an item as something that hashes."""
        return tuple(
            f"{type_}{same_number(held) if type_ == 'N' else held}"
            for name in self.options.key_names
            for type_, held in item[name].items()
        )

    def key(self, item: Item) -> Item:
        """The key attributes of an item."""
        return {name: item[name] for name in self.options.key_names}

    def update(self, key: Item, name: object, **request: Any) -> bool:
        """Change one item under a condition; whether the condition held."""
        return self._if("UpdateItem", name, Key=key, **request)

    def updated(self, key: Item, name: object, **request: Any) -> Item | None:
        """Change one item under a condition; the item after that, None where it did not hold."""
        request |= {"TableName": self.name, "Key": key, "ReturnValues": "ALL_NEW"}
        request["ReturnConsumedCapacity"] = "TOTAL"
        try:
            answer = self.wire.call("UpdateItem", request, self.where, key=name, writing=True)
        except Condition:
            return None
        found: Item = answer["Attributes"]
        return found

    def delete_if(self, key: Item, name: object, **request: Any) -> bool:
        """Remove one item under a condition; whether the condition held."""
        return self._if("DeleteItem", name, Key=key, **request)

    def put_if(self, item: bytes, name: object, **request: Any) -> bool:
        """Put one item under a condition; whether the condition held."""
        return self._if("PutItem", name, Item=msgspec.Raw(item), **request)

    def transact(self, actions: Sequence[Mapping[str, Any]], name: object, token: str) -> bool:
        """Carry out all or nothing; whether all conditions held. The same token is the same once.

        Raises Unsupported where the server has no transactions.
        """
        request = {
            "TransactItems": actions,
            "ClientRequestToken": token,
            "ReturnConsumedCapacity": "TOTAL",
        }
        try:
            self.wire.call("TransactWriteItems", request, self.where, key=name, writing=True)
        except Condition:
            return False
        return True

    def _if(self, operation: str, name: object, **request: Any) -> bool:
        request = {"TableName": self.name, "ReturnConsumedCapacity": "TOTAL", **request}
        try:
            self.wire.call(operation, request, self.where, key=name, writing=True)
        except Condition:
            return False
        return True


def _target(request: Any) -> Any:
    return (
        request["PutRequest"]["Item"]
        if "PutRequest" in request
        else request["DeleteRequest"]["Key"]
    )


def _parts(items: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _batches(writes: list[Write]) -> Iterator[list[Write]]:
    part: list[Write] = []
    total = 0
    for write in writes:
        if part and (len(part) == BATCH_WRITES or total + write.bytes > BATCH_BYTES):
            yield part
            part, total = [], 0
        part.append(write)
        total += write.bytes
    if part:
        yield part
