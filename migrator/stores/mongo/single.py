"""One write of one document, as one command whose answer is looked at here.

The driver's own calls for that plan batches, count what came of each, and keep what a repetition
needs, which nothing here uses: beside a near server that is a good part of a write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo.errors import BulkWriteError

from migrator.stores.mongo.keys import Key
from migrator.stores.mongo.paging import Raw, filter_of

LARGEST = 1024 * 1024
"""Bytes of a document at most: the driver counts what a command and its document take together."""
# Whatever kind a key has that the answer repeats, it can be read.
_ANSWER: CodecOptions[dict[str, Any]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_MS, unicode_decode_error_handler="replace"
)


def put(collection: Raw, key: Key, document: bytes) -> bool:
    """Replace the document of a key, or insert it; whether there was one. Raises as the driver's
    bulk writes do."""
    update = {"q": filter_of(key), "u": RawBSONDocument(document), "upsert": True}
    answer = _told(collection, {"update": collection.name, "updates": [update]}, _ANSWER)
    return "upserted" not in answer


def changed(
    collection: Raw, query: Mapping[str, Any], update: Mapping[str, Any]
) -> RawBSONDocument | None:
    """Change the document that a query finds; what it is after that, None where it finds none.
    Raises as the driver's bulk writes do."""
    command = {"findAndModify": collection.name, "query": query, "update": update, "new": True}
    found: RawBSONDocument | None = _told(collection, command, collection.codec_options)["value"]
    return found


def _told(collection: Raw, command: dict[str, Any], read: CodecOptions[Any]) -> Mapping[str, Any]:
    """The answer to a command that writes, as durably as the collection asks for."""
    command["writeConcern"] = collection.write_concern.document
    answer: Mapping[str, Any] = collection.database.command(command, codec_options=read)
    refused, late = answer.get("writeErrors"), answer.get("writeConcernError")
    if refused or late:
        raise BulkWriteError(
            {"writeErrors": refused or [], "writeConcernErrors": [late] if late else []}
        )
    return answer
