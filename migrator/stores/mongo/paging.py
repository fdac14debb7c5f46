"""Reading a collection in pieces: ranges of ``_id`` in BSON's own order, across all its types.

``{_id: {$gt: x}}`` matches only keys of x's type. The bounds of an index scan (``min``,
``max``) know no types: they walk the ``_id`` index as it lies, from a key of any kind to
another. Keys travel as bytes, so that none changes on the way through a position.

A page is one batch of a cursor, which is kept for the page that follows. Nothing relies on it:
a cursor that the server has dropped is opened anew behind the last key. So what a page shows is
as old as the page before it at most.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.cursor import RawBatchCursor
from pymongo.errors import OperationFailure

from migrator.errors import Refused
from migrator.ports import Json
from migrator.stores.mongo import wire
from migrator.stores.mongo.edge import edge
from migrator.stores.mongo.keys import Key

Raw = Collection[RawBSONDocument]

# A cursor that stands behind a key, by end of range, size of batch, projection and that key.
Slot = tuple[str | None, int, str, str | None]
Cursor = RawBatchCursor[RawBSONDocument]

_HINT = {"_id": 1}
_CURSORS_KEPT = 16
_ANY = CodecOptions(
    document_class=RawBSONDocument,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
    unicode_decode_error_handler="replace",
)
_CURSOR_GONE = {43, 237}  # CursorNotFound, CursorKilled


@dataclass(frozen=True)
class Range:
    """Keys from one, included, to another, excluded; None for no bound."""

    start: Key | None = None
    stop: Key | None = None

    def json(self) -> Json:
        return {"from": position(self.start), "to": position(self.stop)}

    @classmethod
    def of(cls, json: Json) -> Range:
        """Raises Refused for what is no range of this store."""
        if json is None:
            return cls()
        if not isinstance(json, dict) or json.keys() != {"from", "to"}:
            raise Refused(f"{json!r} is no range of a MongoDB collection")
        return cls(key_at(json["from"]), key_at(json["to"]))


def position(key: Key | None) -> str | None:
    """A key in a checkpoint: its BSON type and bytes in hexadecimal."""
    return None if key is None else f"{key[0]:02x}{key[1].hex()}"


def key_at(text: Json) -> Key | None:
    """The key behind a position. Raises Refused for what is none."""
    if text is None:
        return None
    try:
        data = bytes.fromhex(str(text))
        return data[0], data[1:]
    except (ValueError, IndexError):
        raise Refused(f"{text!r} is no position in a MongoDB collection") from None


def wrap(*elements: bytes) -> RawBSONDocument:
    """Elements as a document that the driver sends as it is."""
    return RawBSONDocument(wire.document(*elements))


def sent(data: bytes) -> RawBSONDocument:
    """A document that the driver sends as it is. It looks at those that are to replace others, and
    would take no date that Python has none for."""
    return RawBSONDocument(data, _ANY)


def with_id(key: Key) -> RawBSONDocument:
    return wrap(wire.element(key[0], b"_id", key[1]))


def selector(key: Key) -> RawBSONDocument:
    """The filter for one key; records and patterns would else be read as operators."""
    if key[0] not in (0x03, 0x0B):
        return with_id(key)
    equal = wire.document(wire.element(key[0], b"$eq", key[1]))
    return wrap(wire.element(0x03, b"_id", equal))


def filter_of(key: Key) -> Mapping[str, Any]:
    """As ``selector``; a text by the driver's own codec, which is quicker at sending it."""
    if key[0] == 0x02:
        with suppress(UnicodeDecodeError):
            return {"_id": key[1][4:-1].decode()}
    return selector(key)


def documents(batch: Any) -> Iterator[bytes]:
    """The documents of a raw batch, which is their bytes one after the other."""
    at = 0
    while at < len(batch):
        size = int.from_bytes(batch[at : at + 4], "little")
        yield batch[at : at + size]
        at += size


def _next(cursor: Cursor) -> list[bytes]:
    """The next batch, empty at the end."""
    return [*documents(next(cursor, b""))]


class Pager:
    """Keys and raw documents of one collection."""

    def __init__(self, collection: Raw, where: str) -> None:
        self._collection = collection
        self.where = where
        self._cheap: bool | None = None
        self._lock = threading.Lock()
        self._cursors: dict[Slot, Cursor] = {}

    @property
    def cheap_ranges(self) -> bool:
        """Whether the server walks the index for a range of keys; some scan the collection."""
        if self._cheap is None:
            find = {"find": self._collection.name, "filter": {"_id": {"$gt": "", "$lt": "a"}}}
            try:
                with edge(self.where):
                    plan = self._collection.database.command(
                        "explain", find, verbosity="queryPlanner"
                    )
                self._cheap = "COLLSCAN" not in str(plan)
            except Exception as error:  # explaining may be forbidden where reading is not
                if not isinstance(error.__cause__, OperationFailure):
                    raise
                self._cheap = True
        return self._cheap

    def batch(
        self, range_: Json, position_: Json, limit: int, projection: dict[str, int] | None = None
    ) -> tuple[list[bytes], Json]:
        """Up to ``limit`` documents of a range after a position, and the next position."""
        bounds, after = Range.of(range_), key_at(position_)
        slot = (position(bounds.stop), limit, str(projection))
        cursor = self._take((*slot, position(after))) if after is not None else None
        with edge(self.where):
            try:
                found = [] if cursor is None else _next(cursor)
            except OperationFailure as error:
                if error.code not in _CURSOR_GONE:
                    raise
                cursor = None
            if cursor is None:
                cursor = self._open(bounds, after, limit, projection)
                found = _next(cursor)
                if after is not None:  # ``min`` includes its key, which stood on the page before
                    found = [raw for raw in found if wire.id_of(raw) != after]
            while not found and cursor.alive:
                found = _next(cursor)
        if not cursor.alive:
            return found, None
        next_ = position(wire.id_of(found[-1]))
        self._keep((*slot, next_), cursor)
        return found, next_

    def _open(
        self, range_: Range, after: Key | None, limit: int, projection: dict[str, int] | None
    ) -> Cursor:
        bounds: dict[str, Any] = {}
        if after is not None or range_.start is not None:
            bounds["min"] = with_id(after or range_.start)  # type: ignore[arg-type]
        if range_.stop is not None:
            bounds["max"] = with_id(range_.stop)
        return self._collection.find_raw_batches(
            projection=projection, sort=_HINT, hint=_HINT, batch_size=limit, **bounds
        )

    def _take(self, slot: Slot) -> Cursor | None:
        with self._lock:
            return self._cursors.pop(slot, None)

    def _keep(self, slot: Slot, cursor: Cursor) -> None:
        with self._lock:
            self._cursors[slot] = cursor
            first = next(iter(self._cursors))
            idle = self._cursors.pop(first) if len(self._cursors) > _CURSORS_KEPT else None
        if idle is not None:
            with edge(self.where):
                idle.close()

    def read(self, keys: Sequence[Key], projection: dict[str, int] | None = None) -> list[bytes]:
        """The documents of some keys as they are now, in no order; those that exist."""
        if len(keys) == 1:
            with edge(self.where):
                return self._one(keys[0], projection)
        plain = [key for key in keys if key[0] not in (0x03, 0x0B)]
        filters = [selector(key) for key in keys if key[0] in (0x03, 0x0B)]
        # Long lists make a server that looks at each member for each document slow.
        step = 1000 if self.cheap_ranges else 100
        for i in range(0, len(plain), step):
            filters.append(_among(plain[i : i + step]))
        found: list[bytes] = []
        with edge(self.where):
            for filter_ in filters:
                # One more than there can be: the first reply then ends the cursor.
                for batch in self._collection.find_raw_batches(
                    filter_, projection, batch_size=step + 1
                ):
                    found.extend(documents(batch))
        return found

    def _one(self, key: Key, projection: dict[str, int] | None) -> list[bytes]:
        """The document of a key, if there is one: the driver's cursor would take it longer than
        a command whose whole answer is one reply."""
        collection = self._collection
        find: dict[str, Any] = {"find": collection.name, "filter": filter_of(key), "limit": 1}
        if projection:
            find["projection"] = projection
        find |= {"singleBatch": True, "readConcern": collection.read_concern.document}
        reply = collection.database.command(find, codec_options=collection.codec_options)
        return [bytes(one.raw) for one in reply["cursor"]["firstBatch"]]

    def sample(self, size: int, projection: dict[str, int] | None = None) -> list[bytes]:
        """Some documents from all over the collection, in the order of their keys."""
        if size < 1:
            return []
        stages: list[dict[str, Any]] = [{"$sample": {"size": size}}]
        if projection:
            stages.append({"$project": projection})
        with edge(self.where):
            batches = self._collection.aggregate_raw_batches([*stages, {"$sort": _HINT}])
            return [raw for batch in batches for raw in documents(batch)]

    def split(self, parts: int) -> list[Json]:
        """Up to ``parts`` ranges of about the same number of keys."""
        # One range only where each would cost a scan of the whole collection.
        if parts < 2 or not self.cheap_ranges:
            return [Range().json()]
        keys = [wire.id_of(raw) for raw in self.sample(parts * 20, {"_id": 1})]
        cuts = unique(keys[len(keys) * i // parts] for i in range(1, parts) if keys)
        bounds: list[Key | None] = [None, *cuts, None]
        return [Range(a, b).json() for a, b in pairwise(bounds)]


def unique(keys: Iterable[Key]) -> list[Key]:
    """Keys without repetition, in their order."""
    return list(dict.fromkeys(keys))


def _among(keys: Sequence[Key]) -> RawBSONDocument:
    members = [wire.element(t, str(i).encode(), data) for i, (t, data) in enumerate(keys)]
    among = wire.document(wire.element(0x04, b"$in", wire.document(*members)))
    return wrap(wire.element(0x03, b"_id", among))
