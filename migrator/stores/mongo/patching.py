"""Changing single entries of a block, each patch in one atomic step.

In ``flat`` an entry is a field: it is set or unset, nothing else travels. In ``document`` the
same goes for a top-level field and for an element of a top-level list, under a condition in the
filter that the place is there; for the rest, and where tags have to change, the document is read
and put back on condition that it has not changed since.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bson.raw_bson import RawBSONDocument
from pymongo import UpdateOne

from migrator.errors import Terminal, Transient
from migrator.exchange import Change, is_still, made_of
from migrator.model.block import Block, Patch
from migrator.model.path import escape, parse_path
from migrator.model.value import Record, Value, show
from migrator.stores.mongo import codec, keys, single, wire
from migrator.stores.mongo.edge import edge
from migrator.stores.mongo.keys import Key
from migrator.stores.mongo.paging import Pager, Raw, filter_of, selector, sent, wrap
from migrator.stores.mongo.stored import SIDE, Shape
from migrator.stores.mongo.wire import Unheld

_TRIES = 20
# $set refuses records with such names inside, whole documents may have them.
_DOLLAR = re.compile(rb"[\x01-\x13\x7f\xff]\$[^\0]*\0")
_INDEXED = re.compile(r"\[(\d+)\]$")


class Update(NamedTuple):
    """What one patch becomes: conditions beside the key, fields to set, fields to unset."""

    where: dict[str, Any]
    set: bytes
    unset: dict[str, int]


class Patcher:
    """Carries patches out."""

    def __init__(self, collection: Raw, shape: Shape, pager: Pager, where: str) -> None:
        self._collection = collection
        self._shape = shape
        self._pager = pager
        self._where = where

    def patch(self, patches: Sequence[Patch]) -> None:
        """Each patch atomically. Raises Terminal where there is no such block."""
        rest: list[Patch] = []
        direct: list[tuple[Patch, Update]] = []
        for patch in patches:
            self._shape.check_nesting(patch.id, patch.set)
        for patch in patches:
            update = self._in_flat(patch) if self._shape.flat else self._in_document(patch)
            if update is None:
                rest.append(patch)
            elif update.set or update.unset:
                direct.append((patch, update))
        if direct and self._send([(keys.key_of(p.id), u) for p, u in direct]) < len(direct):
            # A condition failed or a block is not there: setting the same once more is harmless.
            rest = [patch for patch, _ in direct] + rest
        for patch in rest:
            self._replace(patch)

    def _send(self, updates: Sequence[tuple[Key, Update]]) -> int:
        requests = []
        for key, update in updates:
            change: dict[str, Any] = {}
            if update.set:
                change["$set"] = RawBSONDocument(update.set)
            if update.unset:
                change["$unset"] = update.unset
            requests.append(UpdateOne(_condition(key, update.where), change))
        with edge(self._where, writing=True):
            return self._collection.bulk_write(requests, ordered=False).matched_count

    def _in_flat(self, patch: Patch) -> Update | None:
        held, side = self._shape.side(patch.set)
        tags, names = side.get("tags", {}), side.get("names", {})
        fields: Record = dict(held)
        unset: dict[str, int] = {}
        for name in held:
            for part, known in (("tags", tags), ("names", names)):
                if name in known:  # type: ignore[operator]
                    fields[f"{SIDE}.{part}.{name}"] = known[name]  # type: ignore[index]
                else:
                    unset[f"{SIDE}.{part}.{name}"] = 1
        for path in patch.unset:
            name = self._shape.name(path)
            unset |= dict.fromkeys((name, f"{SIDE}.tags.{name}", f"{SIDE}.names.{name}"), 1)
        return self._update({}, fields, unset)

    def _in_document(self, patch: Patch) -> Update | None:
        held, side = self._shape.side(patch.set)
        if side or len({_top(path) for path in (*patch.set, *patch.unset)}) < len(patch.set) + len(
            patch.unset
        ):
            return None
        fields: Record = {}
        where: dict[str, Any] = {}
        for path in patch.set:
            steps = parse_path(path)
            if not steps or not _addressable(str(steps[0])):
                return None
            top = str(steps[0])
            place = top
            if len(steps) == 2 and type(steps[1]) is int:
                place = f"{top}.{steps[1]}"
                where[top] = {"$type": "array"}
                if steps[1]:
                    # $set fills a gap with nulls; an element may only be replaced or appended.
                    where[f"{top}.{steps[1] - 1}"] = {"$exists": True}
            elif len(steps) > 1:
                return None
            fields[place] = held[self._shape.name(path)]
            where[f"{SIDE}.tags.{top}"] = {"$exists": False}
        for path in patch.unset:
            steps = parse_path(path)
            if len(steps) != 1 or not self._is_own(str(steps[0])):
                return None
            where[f"{SIDE}.tags.{steps[0]}"] = {"$exists": False}
        unset = dict.fromkeys([str(parse_path(path)[0]) for path in patch.unset], 1)
        return self._update(where, fields, unset)

    def _is_own(self, name: str) -> bool:
        """Whether a field lies under its own name, which can stand in an update's path."""
        return _addressable(name) and self._shape.name(name) == name

    def _update(
        self, where: dict[str, Any], fields: Record, unset: dict[str, int]
    ) -> Update | None:
        data = codec.encode(fields) if fields else b""
        return None if _DOLLAR.search(data, 4) else Update(where, data, unset)

    def _replace(self, patch: Patch) -> None:
        """Read the document, change the block, put it back if nobody else has written."""
        key = keys.key_of(patch.id)
        for _ in range(_TRIES):
            found = self._pager.read([key])
            if not found:
                raise Terminal(
                    f"{show(patch.id)}: there is no such block to change",
                    where=self._where,
                    hint="put the whole block instead",
                )
            try:
                new = self._shape.encode(made_of(self._shape.decode(found[0]), patch))
            except wire.Damaged as error:
                raise keys.unreadable(patch.id, error, self._where) from None
            if new.raw == found[0] or self._swap(wire.id_of(found[0]), found[0], new.raw):
                return
        raise Transient(f"{show(patch.id)}: others keep writing it", where=self._where)

    def amend(self, id: Value, set_: Mapping[str, Value], append: Mapping[str, Value]) -> Any:
        """The document after fields were set and elements added; None where nothing was done.

        Only where the fields are the document's own, and nothing in them needs a tag.
        """
        names = [*set_, *append]
        if self._shape.flat or not all(map(self._is_own, names)):
            return None
        nested = {**set_, **{name: [item] for name, item in append.items()}}
        self._shape.check_nesting(id, {escape(name): x for name, x in nested.items()})
        changes: dict[str, Any] = {}
        where: dict[str, Any] = {name: {"$type": "array"} for name in append}
        for word, given in (("$set", set_), ("$push", append)):
            if not given:
                continue
            try:
                data = codec.encode(dict(given))
            except Unheld:
                return None
            if _DOLLAR.search(data, 4):
                return None
            changes[word] = RawBSONDocument(data)
        where |= {f"{SIDE}.tags.{name}": {"$exists": False} for name in names}
        with edge(self._where, writing=True):
            return single.changed(self._collection, _condition(keys.key_of(id), where), changes)

    def exchange(self, id: Value, held: Block, change: Change) -> bool:
        """Change a document if it holds this block; False where it does not, or is not there."""
        found = self._pager.read([keys.key_of(id)])
        try:
            block = self._shape.decode(found[0]) if found else None
        except wire.Damaged as error:
            raise keys.unreadable(id, error, self._where) from None
        if block is None or not is_still(block, held):
            return False
        key = wire.id_of(found[0])
        if change is None:
            with edge(self._where, writing=True):
                return self._collection.delete_one(_as_read(key, found[0])).deleted_count == 1
        new = self._shape.encode(made_of(block, change)).raw
        return new == found[0] or self._swap(key, found[0], new)

    def _swap(self, key: Key, old: bytes, new: bytes) -> bool:
        """Replace a document that is still the one that was read."""
        with edge(self._where, writing=True):
            done = self._collection.replace_one(_as_read(key, old), sent(new))
        return done.matched_count == 1


def _as_read(key: Key, old: bytes) -> RawBSONDocument:
    """A filter for a document that is still the one that was read.

    The server's own equality of documents is used, which sees order of fields but takes 1 and
    1.0 for equal.
    """
    literal = wire.document(wire.element(0x03, b"$literal", old))
    both = wire.document(wire.write_element("0", "$$ROOT"), wire.element(0x03, b"1", literal))
    equal = wire.document(wire.element(0x04, b"$eq", both))
    return wrap(_by_key(key), wire.element(0x03, b"$expr", equal))


def _by_key(key: Key) -> bytes:
    """The element of a filter that selects one key."""
    return bytes(selector(key).raw[4:-1])


def _condition(key: Key, where: dict[str, Any]) -> Mapping[str, Any]:
    by_key = filter_of(key)
    if type(by_key) is dict:
        return by_key | where
    return wrap(_by_key(key), codec.encode(where)[4:-1]) if where else by_key


def _top(path: str) -> str:
    return _INDEXED.sub("", path)


def _addressable(name: str) -> bool:
    """Whether a name can stand in an update's path as it is."""
    return bool(name) and name[0] != "$" and "." not in name and "\0" not in name
