"""Cassandra's lines of the contract of feeds: what gateways note around their writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

from cassandra.cluster import Session

from migrator.journal import Bracketed, Brackets
from migrator.model.block import Address, Aggregate, cut
from migrator.model.move import At, Layout
from migrator.ports import Collection, Json, Store, StoreSettings
from migrator.stores import cassandra
from migrator.testing.feeds import FeedCase, Write
from migrator.testing.feeds.case import RULES
from tests.contract import servers


def open_store(_: object) -> Store:
    return cassandra.open_store(StoreSettings("store", servers.cassandra()))


class BracketingApplication:
    """A program that writes as a gateway does: a bracket around each write."""

    def __init__(self, collection: Collection, run: str) -> None:
        self._collection = collection
        self._rules = collection.at.rules("Game")
        assert isinstance(collection, Bracketed)
        self._brackets: Brackets = collection.brackets(run)

    def make(self) -> None:
        pass

    def put(self, key: str, number: int) -> None:
        bracket = self._brackets.open(key)
        self._collection.write([cut(Aggregate(key, {"v": number}), self._rules)])
        self._brackets.close(bracket)

    def fill(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.put(key, 1)

    def delete(self, key: str) -> None:
        bracket = self._brackets.open(key, deleted=True)
        self._collection.delete([Address(key)])
        self._brackets.close(bracket)

    def writes(self) -> Iterator[Write]:
        def nothing() -> None:
            pass

        yield Write("put", nothing, lambda: self.put("a", 1), {"a": False})
        yield Write("delete", nothing, lambda: self.delete("a"), {"a": True})

        def again() -> None:
            self.delete("a")
            self.put("a", 2)

        yield Write("delete and insert again", nothing, again, {"a": True})

        def odd() -> None:
            self._brackets.close(self._brackets.open(cast("str", 7)))

        yield Write("a key of another kind", nothing, odd, {"7": False})

    def holding(self, key: str) -> None:
        return None

    def left(self) -> set[str]:
        session: Session
        session, keyspace = servers._cassandra()
        query = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s"
        return {name for (name,) in session.execute(query, [keyspace]) if name.endswith("_touch")}

    def close(self) -> None:
        pass


def _elsewhere(position: Json) -> Json:
    assert isinstance(position, dict)
    return {**position, "table": "0" * 32}


def _application(_: Path, collection: Collection) -> BracketingApplication:
    # In these tests a run is named as its collection is.
    return BracketingApplication(collection, collection.at.collection)


CASE = FeedCase(
    "cassandra", "partition", open_store,
    lambda name: At("store", name, RULES, Layout("partition")), _application, elsewhere=_elsewhere,
)  # fmt: skip
