"""The journal of MongoDB: a change stream over one collection.

The stream watches the database, so that it also shows markers, which lie in a collection of
their own. It asks for keys alone, and its events are committed by a majority; a read that begins
causally after an event's time sees the write (design, "What a feed shows and what a read sees").
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure
from pymongo.read_concern import ReadConcern

from migrator.errors import FeedLost, MigratorError, Refused, Terminal, Transient
from migrator.journal import Kept, Touch, Touches
from migrator.ports import Json
from migrator.stores.mongo import keys, wire
from migrator.stores.mongo.carry import Pairs
from migrator.stores.mongo.edge import edge
from migrator.stores.mongo.named import Named, pairs_in
from migrator.stores.mongo.paging import Pager
from migrator.stores.mongo.stored import SIDE

if TYPE_CHECKING:
    from bson.timestamp import Timestamp
    from pymongo.database import Database

MARKS = "migrator_marks"
_ALONE = "a standalone server has no change stream"
_TOGETHER = "run it as a replica set of one member"
_AT_ONCE = 2_000
# https://www.mongodb.com/docs/manual/reference/error-codes/: the oplog does not reach back.
_LOST = {280, 286, 260}
# Documents of which a feed that begins learns how their keys are carried.
_SOME = 20
_NOTED = {"_id": 1, f"{SIDE}.id": 1}
_WRITES = ("insert", "update", "replace", "delete")


class MongoJournal:
    """A change stream, begun anew at any position."""

    rounds = 120  # whoever is no mongod may read all of its oplog for it

    def __init__(
        self, database: Database[RawBSONDocument], collection: str, name: str, where: str
    ) -> None:
        self.database = database
        self.collection = collection
        self.name = name
        self.where = where

    def describe(self) -> str:
        return f"change stream of {self.where}"

    def findings(self) -> Iterable[tuple[str, str, str]]:
        with edge(self.where):
            hello = self.database.command("hello")
        if not hello.get("setName") and hello.get("msg") != "isdbgrid":
            yield "error", "standalone", f"{_ALONE}; {_TOGETHER}"

    def prepare(self) -> Json:
        for _ in self.findings():
            raise Refused(_ALONE, where=self.where, hint=_TOGETHER)
        feed = self.open(None)
        feed.close()
        return feed.position

    def drop(self) -> None:
        """A stream leaves nothing on the server; its markers go, and their collection with the
        last of them. Another run's, written just then, has shown in its stream all the same."""
        marks = self.database[MARKS]
        with edge(self.where, writing=True):
            marks.delete_many({"run": self.name})
            if marks.find_one({}, {"_id": 1}) is None:
                marks.drop()

    def kept(self) -> Kept:
        """The oplog is the server's own; a router has none, and not everybody may read it."""
        client = self.database.client
        try:
            with edge(self.where):
                first = client["local"]["oplog.rs"].find_one({}, {"ts": 1})
                last = client.admin.command("hello").get("lastWrite", {}).get("opTime", {})
        except Terminal:
            return Kept()
        if first is None or "ts" not in last:
            return Kept()
        return Kept(window=float(last["ts"].time - first["ts"].time))

    def mark(self, name: str) -> None:
        with edge(self.where, writing=True):
            self.database[MARKS].insert_one({"run": self.name, "mark": name})  # type: ignore[arg-type]

    def open(self, position: Json) -> MongoFeed:
        return MongoFeed(self, position)

    def uuid(self) -> str | None:
        """What tells this collection from one of the same name, here or on another server; None
        where it is not there. Members of a replica set have the same."""
        with edge(self.where):
            found = self.database.command(
                {"listCollections": 1, "filter": {"name": self.collection}}
            )
        first: Any = next(iter(found["cursor"]["firstBatch"]), {})
        return bytes(first["info"]["uuid"]).hex() if "uuid" in first.get("info", {}) else None

    @contextmanager
    def lost(self) -> Iterator[None]:
        """Tell where the oplog no longer reaches back."""
        try:
            yield
        except Exception as error:
            cause = error.__cause__
            if isinstance(cause, OperationFailure) and cause.code in _LOST:
                raise FeedLost(
                    "the oplog no longer reaches back to where the feed was read",
                    where=self.where,
                    hint="both sides are scanned anew; a larger oplog would have held it",
                ) from error
            raise


class MongoFeed:
    """A change stream being read, by its commands: one request gives what there is, and nothing
    is repeated or resumed behind our back (R6)."""

    def __init__(self, journal: MongoJournal, position: Json) -> None:
        self._journal = journal
        self._database = journal.database
        self._session = self._database.client.start_session()
        at = position if isinstance(position, dict) else {}
        self._token: Json = at.get("token")
        self._uuid = journal.uuid()
        if at.get("uuid") not in (None, self._uuid):
            raise FeedLost(
                "it is not the collection that the feed was read from", where=journal.where
            )
        stages = [
            {"$changeStream": {"resumeAfter": self._token} if self._token else {}},
            {"$match": {"ns.coll": {"$in": [journal.collection, MARKS]}}},
        ]
        self._cursor: Any = self._asked(
            {"aggregate": 1, "pipeline": stages, "cursor": {}, "readConcern": {"level": "majority"}}
        )
        self._first: list[Any] = list(self._cursor["firstBatch"])
        self._named = Named(self._noted)
        with edge(journal.where):
            collection = self._database[journal.collection]
            for document in collection.find({}, _NOTED).limit(_SOME):
                self._named.learn(pairs_in(bytes(document.raw)))

    def _noted(self, found: Sequence[keys.Key]) -> dict[keys.Key, Pairs]:
        """What the documents of some ``_id``s that are there note of them."""
        pager = Pager(self._database[self._journal.collection], self._journal.where)
        return {wire.id_of(raw): pairs_in(raw) for raw in pager.read(found, _NOTED)}

    @property
    def position(self) -> Json:
        """Behind what was read so far."""
        return {"token": self._token, "uuid": self._uuid}

    def _asked(self, command: dict[str, Any]) -> Any:
        with self._journal.lost(), edge(self._journal.where):
            raw = self._database.codec_options
            answer = self._database.command(command, session=self._session, codec_options=raw)
        cursor = answer["cursor"]
        if "postBatchResumeToken" in cursor:
            self._token = {"_data": cursor["postBatchResumeToken"]["_data"]}
        return cursor

    def poll(self, seconds: float) -> Touches | None:
        events = self._first or self._more(seconds)
        self._first = []
        if not events:
            return None
        self._wait_for(events[-1]["clusterTime"])
        given = Touches(position=self.position)
        touches: dict[keys.Key, Touch] = {}
        marks: list[str] = []
        for event in events:
            kind = event["operationType"]
            if event["ns"].get("coll") == MARKS:
                marks += _mark(event, self._journal.name)
            elif kind in _WRITES:
                key = wire.id_of(event["documentKey"].raw)
                if (whole := event.get("fullDocument")) is not None:
                    self._named.met(bytes(whole.raw))
                before = touches.pop(key, None)
                deleted = kind == "delete" or (before is not None and before.deleted)
                # Each change of a document is one event, and what changes nothing is none.
                writes = 1 if before is None else before.writes + 1
                touches[key] = Touch(None, deleted, writes)
            else:
                given.whole = True  # drop, rename, dropDatabase: nothing says of which keys
        given.touches, given.marks = list(self._meant(touches)), marks
        given.age = _age(events[0])
        return given

    def _meant(self, touches: dict[keys.Key, Touch]) -> Iterator[Touch]:
        """The touches by the keys that blocks have."""
        meant = self._named.of(touches)
        for key, touch in touches.items():
            yield from (replace(touch, key=value) for value in meant[key])

    def _more(self, seconds: float) -> list[Any]:
        cursor = self._asked(
            {
                "getMore": self._cursor["id"], "collection": "$cmd.aggregate",
                "batchSize": _AT_ONCE, "maxTimeMS": max(1, int(seconds * 1000)),
            }
        )  # fmt: skip
        if not cursor["id"]:
            raise Transient("the server ended the change stream", where=self._journal.where)
        return list(cursor["nextBatch"])

    def _wait_for(self, at: Timestamp) -> None:
        """Until a read at majority, here and now, is causally after this time."""
        marks = self._database.get_collection(MARKS, read_concern=ReadConcern("majority"))
        with edge(self._journal.where):
            self._session.advance_operation_time(at)
            marks.find_one({"_id": self._journal.name}, session=self._session)

    def acknowledge(self, position: Json) -> None:
        """The server keeps no positions: the control database's is the one."""

    def close(self) -> None:
        with suppress(MigratorError), edge(self._journal.where):
            kill = {"killCursors": "$cmd.aggregate", "cursors": [self._cursor["id"]]}
            self._database.command(kill, session=self._session)
        self._session.end_session()


def _mark(event: Any, run: str) -> list[str]:
    full = event.get("fullDocument")
    if event["operationType"] != "insert" or full is None or full.get("run") != run:
        return []
    return [str(full["mark"])]


def _age(event: Any) -> float:
    return max(0.0, time.time() - float(event["clusterTime"].time) - 1.0)
