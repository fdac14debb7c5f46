"""The locator of a live move whose keys change: which keys of both sides go together.

It lies beside the target, in a collection of its own: under each key of one side the keys of the
other that it led to when it was read last. It is written before the mirror is, and cleared after;
so it may name a key too many, never one too few (R3).
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


class Locator:
    """Keeps for each side's keys those of the other side."""

    def __init__(self, route: Route, run: str, retry: Retry) -> None:
        name = journal_name(run, route.number, "locator")
        at = At(route.move.target.store, name, layout=_layout(route.target_store.capabilities))
        self._collection: Collection = route.target_store.collection("Locator", at)
        self._retry = retry

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
            found += map(_keys_in, self._retry(self._collection.read, ids))
        return found

    def put(self, sides: Mapping[str, Keys]) -> None:
        """Note for keys of both sides all keys of the other; for some perhaps none.

        Raises as a write does: it may have been carried out in part.
        """
        blocks: list[Block] = []
        gone: list[Address] = []
        for side, keys in sides.items():
            for key, others in keys.values():
                if others:
                    texts: list[Value] = [to_text(other) for other in others]
                    blocks.append(Block(_id(side, key), {"": {"keys": texts}}))
                else:
                    gone.append(Address(_id(side, key)))
        for start in range(0, len(blocks), _AT_ONCE):
            self._collection.write(blocks[start : start + _AT_ONCE])
        for start in range(0, len(gone), _AT_ONCE):
            self._collection.delete(gone[start : start + _AT_ONCE])


def _layout(can: Capabilities) -> str | None:
    """The store's default layout, where that need not be told what its columns are."""
    if not can.layouts[can.default_layout].typed:
        return None
    plain = (name for name, facts in can.layouts.items() if facts.by_key and not facts.typed)
    return next(plain, None)


def _id(side: str, key: Value) -> str:
    """Keys have no bound of length, and are of any kind; what they lie under here is short text."""
    return f"{side[0]}{hashlib.blake2b(encode(key), digest_size=20).hexdigest()}"


def _keys_in(block: Block | None) -> list[Value]:
    if block is None:
        return []
    texts = cast("list[str]", cast("Record", block.entries[""])["keys"])
    return [from_text(text, load) for text in texts]


__all__ = ["Keys", "Locator"]
