"""Writing whole blocks and removing them: one bulk request a batch, each document by its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bson.raw_bson import RawBSONDocument
from pymongo import DeleteOne, ReplaceOne
from pymongo.errors import BulkWriteError

from migrator.errors import DoesNotFit, MigratorError
from migrator.model.block import Block
from migrator.model.value import Value, show
from migrator.stores.mongo import single
from migrator.stores.mongo.edge import DUPLICATE, by_code, edge, translated
from migrator.stores.mongo.keys import Key
from migrator.stores.mongo.paging import Pager, Raw, selector, sent
from migrator.stores.mongo.stored import Shape, Stored

# Documents in one request: after so many it is asked anew what to begin with.
_AT_ONCE = 500


class Writer:
    """Puts documents so that the same batch twice does what it does once.

    New documents are inserted, which costs a server far less than an upsert; those whose key
    is taken are replaced. Where most are taken the next request begins with the replacing.
    """

    def __init__(self, collection: Raw, shape: Shape, pager: Pager, where: str) -> None:
        self._collection = collection
        self._shape = shape
        self._pager = pager
        self._where = where
        self._insert_first = True

    def write(self, blocks: Sequence[Block]) -> int:
        """Put whole blocks; the bytes sent. Raises DoesNotFit before anything is written."""
        encoded = [(self._shape.encode(block), block.id) for block in blocks]
        by_key = {(stored.type, stored.id): (stored, id_) for stored, id_ in encoded}
        batch = list(by_key.values())
        for start in range(0, len(batch), _AT_ONCE):
            self._put(batch[start : start + _AT_ONCE])
        return sum(len(stored.raw) for stored, _ in batch)

    def _put(self, batch: list[tuple[Stored, Value]]) -> None:
        if self._insert_first:
            taken = self._insert(batch)
            self._insert_first = len(taken) * 2 <= len(batch)
            if taken:
                self._replace(taken)
        else:
            self._insert_first = self._replace(batch) * 2 > len(batch)

    def insert(self, block: Block) -> bool:
        """Insert one document; False where its key is taken."""
        return not self._insert([(self._shape.encode(block), block.id)])

    def _insert(self, batch: list[tuple[Stored, Value]]) -> list[tuple[Stored, Value]]:
        """Insert the documents; those whose key is there already."""
        try:
            with edge(self._where, writing=True):
                self._collection.insert_many(
                    [sent(stored.raw) for stored, _ in batch], ordered=False
                )
        except MigratorError as error:
            cause = error.__cause__
            if not isinstance(cause, BulkWriteError):
                raise self._named(error, batch) from cause
            taken = [batch[found["index"]] for found in _errors(cause) if _own_key(found)]
            self._raise_rest(cause, batch)
            return taken
        return []

    def _replace(self, batch: list[tuple[Stored, Value]]) -> int:
        """Replace the documents, or insert those that are not there; how many were not."""
        try:
            with edge(self._where, writing=True):
                return self._replaced([stored for stored, _ in batch])
        except MigratorError as error:
            cause = error.__cause__
            if not isinstance(cause, BulkWriteError):
                raise self._named(error, batch) from cause
            self._raise_rest(cause, batch, replacing=True)
            raise

    def _replaced(self, batch: list[Stored]) -> int:
        if len(batch) == 1 and len(batch[0].raw) <= single.LARGEST:
            (one,) = batch
            return 0 if single.put(self._collection, (one.type, one.id), one.raw) else 1
        requests: list[ReplaceOne[RawBSONDocument]] = [
            ReplaceOne(selector((s.type, s.id)), sent(s.raw), upsert=True) for s in batch
        ]
        return self._collection.bulk_write(requests, ordered=False).upserted_count

    def _named(self, error: MigratorError, batch: list[tuple[Stored, Value]]) -> MigratorError:
        """With one block in the batch the error is that block's."""
        if error.__cause__ is None or len(batch) > 1:
            return error
        cause = error.__cause__
        if not isinstance(cause, Exception):
            return error
        return translated(cause, self._where, key=batch[0][1], writing=True)

    def _raise_rest(
        self,
        error: BulkWriteError,
        batch: list[tuple[Stored, Value]],
        replacing: bool = False,
    ) -> None:
        """Raise for the first refusal that is not a taken key."""
        for found in _errors(error):
            stored, id_ = batch[found["index"]]
            if found["code"] != DUPLICATE:
                raise by_code(
                    found["code"], found["errmsg"], self._where, key=id_, writing=True
                ) from error
            if not _own_key(found):
                raise self._taken_elsewhere(found, stored, id_) from error
            if replacing:
                # Two upserts of one key met; the next try finds the key there.
                raise by_code(112, found["errmsg"], self._where) from error
        if error.details.get("writeConcernErrors"):
            raise translated(error, self._where, writing=True) from error

    def _taken_elsewhere(self, found: Mapping[str, Any], stored: Stored, id_: Value) -> DoesNotFit:
        """Another unique index holds the value already, for another block (C15)."""
        with edge(self._where):
            holder = self._collection.find_one(dict(found.get("keyValue", {})), {"_id": 1})
        other = "another block" if holder is None else show(self._shape.id_of(bytes(holder.raw)))
        fields = ", ".join(found.get("keyPattern", {})) or "a unique index"
        return DoesNotFit(
            f"{show(id_)} and {other} have the same {fields}, which must be unique here",
            key=id_,
            where=self._where,
            hint="change one of the two, or drop the unique index of the target",
        )

    def delete(self, keys: Sequence[Key]) -> None:
        """Remove documents; those that are not there are no error."""
        if keys:
            with edge(self._where, writing=True):
                self._collection.bulk_write(
                    [DeleteOne(selector(key)) for key in keys], ordered=False
                )


def _errors(error: BulkWriteError) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = (error.details or {}).get("writeErrors", [])
    return found


def _own_key(found: Mapping[str, Any]) -> bool:
    """Whether it is the key itself that is there already."""
    if found["code"] != DUPLICATE:
        return False
    pattern = found.get("keyPattern")
    return list(pattern) == ["_id"] if pattern else "index: _id_" in found["errmsg"]
