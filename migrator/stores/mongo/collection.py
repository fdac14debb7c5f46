"""One class at one location in MongoDB."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from bson import json_util
from bson.raw_bson import RawBSONDocument
from pymongo.errors import CollectionInvalid, OperationFailure

from migrator.errors import Refused
from migrator.exchange import Change, done_unread
from migrator.journal import Journal, Note
from migrator.model.block import Address, Block, Patch, has_ended
from migrator.model.canonical import encode as canonical
from migrator.model.move import At
from migrator.model.path import parse_path
from migrator.model.rules import Entries
from migrator.model.value import Value
from migrator.ports import Held, Json, Observer, Page, Statistics
from migrator.stores.mongo import facts, keys, wire
from migrator.stores.mongo.edge import edge
from migrator.stores.mongo.journal import MongoJournal
from migrator.stores.mongo.note import MongoNote
from migrator.stores.mongo.paging import Pager, Raw
from migrator.stores.mongo.patching import Patcher
from migrator.stores.mongo.stored import REST, SIDE, Shape
from migrator.stores.mongo.wire import Damaged
from migrator.stores.mongo.writing import Writer

if TYPE_CHECKING:
    from pymongo.database import Database

Decode = Callable[[bytes], Block]

IDENTITY = ("admin", "system.version")
"""Where a server that is one shard of a cluster says so: database and collection."""


def options_of(at: At) -> tuple[str, str | None]:
    """Layout and field of the deadline. Raises Refused for what this store does not know."""
    layout = at.layout
    name = layout.name if layout else facts.DEFAULT_LAYOUT
    options = dict(layout.options) if layout else {}
    if at.tables is not None or name not in facts.LAYOUTS:
        raise Refused(
            f"{at}: MongoDB has no layout {name!r}",
            hint=f"choose one of: {', '.join(facts.LAYOUTS)}",
        )
    expires = options.pop("expires", None)
    if options:
        raise Refused(f"{at}: layout {name} has no option {', '.join(options)}", hint="expires")
    if expires is not None and (
        not isinstance(expires, str)
        or not expires
        or expires in ("_id", SIDE, REST)
        or any(char in expires for char in ".$\0")
    ):
        raise Refused(f"{at}: {expires!r} can't be the field of the deadline")
    return name, expires


class MongoCollection:
    """The blocks of one class, each in a document whose ``_id`` is the block key."""

    def __init__(self, store: str, database: Database[RawBSONDocument], cls: str, at: At) -> None:
        self.at = at
        self.cls = cls
        self._layout, self._expires = options_of(at)
        self._where = f"{store}:{at.collection}"
        self._database = database
        with edge(self._where):
            self._collection: Raw = database[at.collection]
        self._representation = at.rules(cls)
        self._shape = self._new_shape()
        self._pager = Pager(self._collection, self._where)
        self._writer = Writer(self._collection, self._shape, self._pager, self._where)
        self._patcher = Patcher(self._collection, self._shape, self._pager, self._where)

    def _new_shape(self) -> Shape:
        flat = self._layout == "flat"
        return Shape(flat, self._representation, self._where, self._expires)

    def journal(self, name: str) -> Journal:
        """Its change stream; markers lie under the run's name."""
        return MongoJournal(self._database, self.at.collection, name, self._where)

    def note(self, name: str) -> Note:
        """The note of this name, in the same database."""
        return MongoNote(self._database, self._where, name)

    # ------------------------------------------------------------ the collection itself

    def _info(self) -> dict[str, Any] | None:
        with edge(self._where):
            found = self._database.list_collections(filter={"name": self.at.collection})
            for info in found:
                return dict(info)
        return None

    def exists(self) -> bool:
        return self._info() is not None

    def create(self) -> None:
        with edge(self._where):
            with suppress(CollectionInvalid):  # it is there already
                self._database.create_collection(self.at.collection)
            if self._expires:
                self._collection.create_index(self._expires, expireAfterSeconds=0)

    def drop(self) -> None:
        with edge(self._where):
            self._collection.drop()

    def schema(self) -> Json:
        info = self._info()
        if info is None:
            return None
        indexes = self._indexes()
        shown = {"options": info.get("options", {}), "indexes": indexes, "type": info.get("type")}
        return json.loads(json_util.dumps(shown, json_options=json_util.CANONICAL_JSON_OPTIONS))

    def _indexes(self) -> dict[str, Any]:
        with edge(self._where):
            return {
                index["name"]: {k: x for k, x in index.items() if k not in ("ns", "v")}
                for index in self._collection.list_indexes()
            }

    def findings(self) -> Iterable[tuple[str, str, str]]:
        info = self._info()
        if info is None:
            return []
        return facts.findings(info, self._indexes(), self._expires, self._shard())

    def _shard(self) -> str:
        """The name of the shard that answers, where it is no router in front of all; or nothing."""
        database, name = IDENTITY
        with edge(self._where):
            if self._database.command("hello").get("msg") == "isdbgrid":
                return ""
            try:
                versions = self._database.client.get_database(database).get_collection(name)
                found = versions.find_one({"_id": "shardIdentity"})
            except OperationFailure:
                return ""  # whoever may not ask is not told
        return str(found.get("shardName", "?")) if found else ""

    def count(self) -> int:
        with edge(self._where):
            return self._collection.count_documents({})

    def statistics(self) -> Statistics:
        with edge(self._where):
            found = self._database.command("collStats", self.at.collection)
        return Statistics(int(found.get("count", 0)), int(found.get("size", 0)), exact=False)

    def settle(self) -> None:
        """MongoDB has neither sequences nor statistics of its own to mend."""

    # ------------------------------------------------------------ reading

    def split(self, parts: int) -> list[Json]:
        return self._pager.split(parts)

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        return read_page(self._pager, self._shape.decode, range_, position, limit)

    def keys(self, range_: Json, position: Json, limit: int) -> tuple[list[Value], Json]:
        listed, next_ = self._pager.batch(range_, position, limit, {"_id": 1, f"{SIDE}.id": 1})
        return [self._shape.id_of(raw) for raw in listed], next_

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        return read_blocks(self._pager, self._shape.decode, ids)

    def sample(self, size: int) -> Page:
        return _page_of(self._pager.sample(size), self._shape.decode)

    def read_entries(self, id: Value, paths: Sequence[str]) -> Entries | None:
        found = self._pager.read([keys.key_of(id)], self._projection(paths))
        if not found:
            return None
        try:
            block = self._shape.decode(found[0])
        except Damaged as error:
            raise keys.unreadable(id, error, self._where) from None
        if has_ended(block.expires, time.time()):
            return None
        entries = block.entries
        return {path: entries[path] for path in paths if path in entries}

    def _projection(self, paths: Sequence[str]) -> dict[str, int] | None:
        """The fields that hold some entries; None where only the whole document does."""
        names = {SIDE, self._expires} if self._expires else {SIDE}
        for path in paths:
            if not self._shape.flat:
                if not path:
                    return None  # what is left depends on all that is there
                path = str(parse_path(path)[0])
            names.add(self._shape.name(path))
        if any(not name or "." in name or name[0] == "$" for name in names):
            return None
        return dict.fromkeys(names, 1)

    def observer(self) -> Observer:
        from migrator.stores.mongo.observer import MongoObserver

        flat = self._layout == "flat"
        return MongoObserver(
            Pager(self._collection, self._where), self._representation, flat, self._expires
        )

    # ------------------------------------------------------------ writing

    def write(self, blocks: Sequence[Block]) -> int:
        return self._writer.write(blocks)

    def patch(self, patches: Sequence[Patch]) -> None:
        self._patcher.patch(patches)

    def amend(
        self, id: Value, set: Mapping[str, Value], append: Mapping[str, Value]
    ) -> Block | None:
        found = self._patcher.amend(id, set, append)
        try:
            return None if found is None else self._shape.decode(bytes(found.raw))
        except Damaged as error:
            raise done_unread(keys.unreadable(id, error, self._where)) from None

    def exchange(self, id: Value, held: Block | None, change: Change) -> bool:
        if held is None and isinstance(change, Block):
            return self._writer.insert(change)
        if held is None:
            return self.read([id]) == [None]
        return self._patcher.exchange(id, held, change)

    def delete(self, addresses: Sequence[Address]) -> None:
        self._writer.delete([keys.key_of(address.id) for address in addresses])

    # ------------------------------------------------------------ what fits

    def size(self, block: Block) -> int:
        return self._shape.size(block)

    def needs_tag(self, value: Value) -> Held | None:
        return facts.needs_tag(value)

    def same_key(self, id: Value) -> Value:
        return keys.compared(id)


def read_page(pager: Pager, decode: Decode, range_: Json, position: Json, limit: int) -> Page:
    """A page of blocks; documents that can't be read are reported, the others are fine (C65)."""
    found, next_ = pager.batch(range_, position, limit)
    return _page_of(found, decode, next_)


def _page_of(found: Sequence[bytes], decode: Decode, next_: Json = None) -> Page:
    page = Page([], next_)
    for raw in found:
        page.bytes += len(raw)
        try:
            page.blocks.append(decode(raw))
        except Damaged as error:
            page.damaged.append((keys.value_of(wire.id_of(raw)), str(error)))
    return page


def read_blocks(pager: Pager, decode: Decode, ids: Sequence[Value]) -> list[Block | None]:
    """The blocks of some keys, in the order of the keys."""
    wanted = [keys.key_of(id) for id in ids]
    found = pager.read(list(dict.fromkeys(wanted)))
    exact = {wire.id_of(raw): raw for raw in found}
    # MongoDB finds 1.0 where 1 is asked for: such a document is known by the key they share.
    loose: dict[bytes, bytes] = {}
    if len(exact) != len(found) or any(key not in exact for key in wanted):
        loose = {canonical(keys.compared(keys.value_of(wire.id_of(r)))): r for r in found}
    blocks: list[Block | None] = []
    for id, key in zip(ids, wanted, strict=True):
        raw = exact.get(key) or loose.get(canonical(keys.compared(id)))
        try:
            blocks.append(None if raw is None else decode(raw))
        except Damaged as error:
            raise keys.unreadable(id, error, pager.where) from None
    return blocks
