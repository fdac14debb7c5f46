"""The verifier's reader of item collections: values by the observer's own decoder.

Which items lie at a place and are in force is found as the copier does; what they hold is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from migrator.model.block import Block
from migrator.model.value import Record, Value
from migrator.ports import Json, Page
from migrator.stores.dynamodb.codec import Item
from migrator.stores.dynamodb.gathered import Seen
from migrator.stores.dynamodb.gathered_collection import Walker, read_blocks, read_page
from migrator.stores.dynamodb.observer import (
    deadline_of,
    fields_of,
    key_of,
    side_of,
    text_key,
    value_of,
)


class GatheredObserver:
    """Reads the blocks of one class for comparison."""

    def __init__(self, walker: Walker) -> None:
        self._walker = walker
        self._places = walker.shape.places
        options = walker.table.options
        self._expires = options.expires
        self._told_by = options.told_by
        self._aside = {*options.key_names, *options.attributes, options.class_attribute}

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        return read_page(self._walker, self.block, range_, position, limit)

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        return read_blocks(self._walker, self.block, ids)

    def block(self, seen: Seen) -> Block:
        """The block of the items at a place. Raises Unreadable."""
        head_key = seen.place.prefix + self._places.head
        entries: Record = {}
        said: dict[str, Any] = {}
        ends: list[tuple[bool, int | None]] = []
        for sk, item in seen.entries.items():
            side = side_of(item)
            rest = {name: av for name, av in item.items() if name not in self._aside}
            if side is not None:
                del rest["_migrator"]
            ends.append((sk == head_key, deadline_of(rest, self._expires, side or {})))
            if sk == head_key:
                said = side or {}
                if said.get("head", {}).get("M", {}).get("only") == {"BOOL": True}:
                    continue
            entries[self._path(item)] = self._value(rest, side or {})
        tag = said.get("id")
        plain = ",".join(["list", *[""] * self._places.parts]) if self._places.parts else None
        if self._told_by == "S":
            key = text_key(seen.id, tag["S"] if tag else plain)
        else:
            key = key_of({self._told_by: seen.id}, tag)
        _, expires = max(ends, key=lambda end: end[0])
        place = list(seen.place) if self._places.fields else None
        return Block(key, entries, expires, place)

    def _path(self, item: Item) -> str:
        found = self._places.find(item)
        assert found is not None
        return found.path

    def _value(self, rest: dict[str, Any], side: dict[str, Any]) -> Value:
        if "_" in rest:
            said = side.get("tags", {}).get("M", {}).get("_", {}).get("M", {})
            return value_of(rest["_"], {path: tag["S"] for path, tag in said.items()})
        return fields_of(rest, side, as_paths=False)
