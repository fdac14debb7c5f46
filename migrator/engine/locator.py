"""The locator of a live move whose keys change: which keys of both sides go together.

It lies beside the target, in a collection of its own: under each key of one side the keys of the
other that it led to when it was read last. It is written before the mirror is, and cleared after;
so it may name a key too many, never one too few (R3).

Where a key leads to very many, some of these lie in blocks of their own, which the first one names:
stores bound what one block may hold. They are never changed. New ones are written before what names
them, and old ones deleted after.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import cast

from migrator.journal import journal_name
from migrator.model.block import Address, Block
from migrator.model.canonical import encode
from migrator.model.json_text import from_text, load, to_text
from migrator.model.move import At
from migrator.model.value import Record, Value
from migrator.ports import Capabilities, Collection
from migrator.retry import Retry
from migrator.route import Route

# Keys of one side, each with those of the other; by canonical form.
Keys = Mapping[bytes, tuple[Value, Sequence[Value]]]
_AT_ONCE = 500
# Characters of keys in one block: less than any store's bound, however each is kept.
_LONGEST = 60_000
_LONG_AT_ONCE = 50


class Locator:
    """Keeps for each side's keys those of the other side."""

    def __init__(self, route: Route, run: str, retry: Retry) -> None:
        name = journal_name(run, route.number, "locator")
        can = route.target_store.capabilities
        self.at = At(route.move.target.store, name, layout=_layout(can))
        self._collection: Collection = route.target_store.collection("Locator", self.at)
        self._retry = retry
        # Of those read last: where the rest of their keys lies.
        self._more: dict[str, list[str]] = {}

    def create(self) -> None:
        self._retry(self._collection.create)

    def drop(self) -> None:
        if self._retry(self._collection.exists):
            self._retry(self._collection.drop)

    def of(self, side: str, keys: Sequence[Value]) -> list[list[Value]]:
        """The keys of the other side that each of these led to."""
        found: list[list[Value]] = []
        for start in range(0, len(keys), _AT_ONCE):
            ids = [_id(side, key) for key in keys[start : start + _AT_ONCE]]
            for id, block in zip(ids, self._retry(self._collection.read, ids), strict=True):
                found.append([*self._rest(id, block), *_named(block, "keys")])
        return found

    def _rest(self, id: str, block: Block | None) -> list[Value]:
        """The keys that lie in other blocks."""
        more = [str(each) for each in _named(block, "more")]
        self._more.pop(id, None)
        if more:
            self._more[id] = more
        found: list[Value] = []
        for start in range(0, len(more), _LONG_AT_ONCE):
            for each in self._retry(self._collection.read, more[start : start + _LONG_AT_ONCE]):
                found += _named(each, "keys")
        return found

    def put(self, sides: Mapping[str, Keys]) -> None:
        """Note for keys of both sides all keys of the other; for some perhaps none.

        Raises as a write does: it may have been carried out in part.
        """
        blocks: list[Block] = []
        gone: list[str] = []
        for side, keys in sides.items():
            for key, others in keys.values():
                id = _id(side, key)
                made = _blocks(id, others)
                here = {block.id for block in made}
                gone += [each for each in [id, *self._more.pop(id, ())] if each not in here]
                long = [str(block.id) for block in made[:-1]]
                for start in range(0, len(long), _LONG_AT_ONCE):
                    self._collection.write(made[start : min(start + _LONG_AT_ONCE, len(long))])
                if long:
                    self._more[id] = long
                blocks += made[-1:]
        for start in range(0, len(blocks), _AT_ONCE):
            self._collection.write(blocks[start : start + _AT_ONCE])
        for start in range(0, len(gone), _AT_ONCE):
            self._collection.delete([Address(id) for id in gone[start : start + _AT_ONCE]])


def _layout(can: Capabilities) -> str | None:
    """The store's default layout, where that need not be told what its columns are."""
    if not can.layouts[can.default_layout].typed:
        return None
    plain = (name for name, facts in can.layouts.items() if facts.by_key and not facts.typed)
    return next(plain, None)


def _id(side: str, key: Value) -> str:
    """Keys have no bound of length, and are of any kind; what they lie under here is short text."""
    return f"{side[0]}{_digest(encode(key))}"


def _digest(form: bytes) -> str:
    return hashlib.blake2b(form, digest_size=20).hexdigest()


def _blocks(id: str, keys: Sequence[Value]) -> list[Block]:
    """The blocks that hold these keys, the last of them under the identifier; none for no key."""
    pieces: list[list[Value]] = []
    room = 0
    for text in map(to_text, keys):
        if len(text) > room or not pieces:
            pieces.append([])
            room = _LONGEST
        pieces[-1].append(text)
        room -= len(text)
    if not pieces:
        return []
    rest = [Block(f"{id}-{_digest(encode(texts))}", {"": {"keys": texts}}) for texts in pieces[:-1]]
    more: list[Value] = [to_text(block.id) for block in rest]
    last: Record = {"keys": pieces[-1], "more": more} if more else {"keys": pieces[-1]}
    return [*rest, Block(id, {"": last})]


def _named(block: Block | None, name: str) -> list[Value]:
    if block is None:
        return []
    texts = cast("list[str]", cast("Record", block.entries[""]).get(name, []))
    return [from_text(text, load) for text in texts]


__all__ = ["Keys", "Locator"]
