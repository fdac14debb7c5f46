"""A note on MongoDB: a document of a collection of Migrator's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pymongo.errors import DuplicateKeyError

from migrator.stores.mongo.edge import edge

if TYPE_CHECKING:
    from bson.raw_bson import RawBSONDocument
    from pymongo.database import Database

NOTES = "migrator_epochs"


class MongoNote:
    """Written and read at majority, as all is (settings.py)."""

    def __init__(self, database: Database[RawBSONDocument], where: str, name: str) -> None:
        self._notes: Any = database[NOTES]
        self._where = where
        self._name = name

    def read(self) -> str | None:
        with edge(self._where):
            found = self._notes.find_one({"_id": self._name})
        return None if found is None else str(found["text"])

    def change(self, old: str | None, new: str | None) -> bool:
        held = {"_id": self._name, "text": old}
        with edge(self._where, writing=True):
            if old is None:
                return self._begin(new)
            if new is None:
                return bool(self._notes.delete_one(held).deleted_count)
            return bool(self._notes.update_one(held, {"$set": {"text": new}}).matched_count)

    def _begin(self, text: str | None) -> bool:
        try:
            self._notes.insert_one({"_id": self._name, "text": text})
        except DuplicateKeyError:
            return False
        return True
