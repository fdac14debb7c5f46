"""MongoDB's lines of the contract of feeds: change streams, in both layouts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pymongo

from migrator.model.move import At, Layout
from migrator.ports import Collection, Json, Store, StoreSettings
from migrator.stores import mongo
from migrator.testing.feeds import FeedCase, Write
from migrator.testing.feeds.case import RULES
from tests.conftest import at_the_end, server_url

_DATABASE = f"migrator_feeds_{os.getpid()}"


def _open(_: object) -> Store:
    return mongo.open_store(StoreSettings("docs", server_url("mongodb"), {"database": _DATABASE}))


class MongoApplication:
    """Writes documents by pymongo."""

    def __init__(self, collection: Collection) -> None:
        self.client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(
            server_url("mongodb")
        )
        self.database = self.client[_DATABASE]
        self.games = self.database[collection.at.collection]
        if drop not in at_the_end:
            at_the_end.append(drop)

    def make(self) -> None:
        pass

    def put(self, key: str, number: int) -> None:
        # The server may let two inserts of one upsert collide, where mongod repeats one itself.
        while True:
            try:
                self.games.update_one({"_id": key}, {"$set": {"v": number}}, upsert=True)
            except pymongo.errors.DuplicateKeyError:
                continue
            return

    def fill(self, keys: Sequence[str]) -> None:
        self.games.insert_many([{"_id": key, "v": 1} for key in keys])

    def delete(self, key: str) -> None:
        self.games.delete_one({"_id": key})

    def holding(self, key: str) -> None:
        return None

    def writes(self) -> Iterator[Write]:
        games = self.games
        one = {"_id": "a", "v": 1, "rounds": [{"n": 1}]}
        two = {"_id": "b", "v": 1}

        def before() -> None:
            games.delete_many({})
            games.insert_many([dict(one), dict(two)])

        a = {"a": False}
        yield Write("insert", lambda: games.delete_many({}), lambda: games.insert_one(dict(one)), a)
        yield Write("update", before, lambda: games.update_one({"_id": "a"}, {"$inc": {"v": 1}}), a)
        yield Write("replace", before, lambda: games.replace_one({"_id": "a"}, {"v": 2}), a)
        push = {"$push": {"rounds": {"n": 2}}}
        yield Write("append", before, lambda: games.update_one({"_id": "a"}, push), a)
        yield Write("delete", before, lambda: games.delete_one({"_id": "a"}), {"a": True})

        def again() -> None:
            games.delete_one({"_id": "a"})
            games.insert_one(dict(one))

        yield Write("delete and insert again", before, again, {"a": True})

        def together() -> None:
            with self.client.start_session() as session, session.start_transaction():
                games.delete_one({"_id": "a"}, session=session)
                games.insert_one({"_id": "a", "v": 9}, session=session)
                games.update_one({"_id": "b"}, {"$set": {"v": 9}}, session=session)

        both = {"a": True, "b": False}
        yield Write("several in one transaction", before, together, both)
        many = {"a": False, "b": False}
        yield Write("update many", before, lambda: games.update_many({}, {"$inc": {"v": 1}}), many)
        yield Write("drop", before, games.drop, {}, whole=True)

    def left(self) -> set[str]:
        names = self.database.list_collection_names()
        return {name for name in names if name != self.games.name}

    def close(self) -> None:
        self.client.close()


def drop() -> None:
    client: pymongo.MongoClient[dict[str, Any]] = pymongo.MongoClient(server_url("mongodb"))
    client.drop_database(_DATABASE)
    client.close()


def _elsewhere(position: Json) -> Json:
    assert isinstance(position, dict)
    return {**position, "uuid": "00000000-0000-0000-0000-000000000000"}


def _case(layout: str) -> FeedCase:
    def at(name: str) -> At:
        return At("docs", name, RULES, Layout(layout))

    def application(_: Path, collection: Collection) -> MongoApplication:
        return MongoApplication(collection)

    return FeedCase("mongodb", layout, _open, at, application, elsewhere=_elsewhere, keeps=False)


DOCUMENT, FLAT = _case("document"), _case("flat")
