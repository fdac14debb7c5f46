"""Expressions about one item: that it still is as it was read, and what is to become of it.

A condition names each attribute that was read, and those that are added. What it can't name is an
attribute that somebody else has added since; so an exchange that adds one draws a version, which
stands in the side attribute, and each condition names that as well (R12).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from migrator.exchange import TooMuch
from migrator.model.value import Value, show
from migrator.stores.dynamodb.codec import Av, Item
from migrator.stores.dynamodb.options import SIDE
from migrator.stores.dynamodb.side import SUM, Side

# What the service takes in one expression; the emulators take more.
BYTES, OPERATORS = 4096, 300


class Expressions:
    """The names and values that the expressions of one request share."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.values: dict[str, Av] = {}

    def name(self, attribute: str) -> str:
        """What stands for an attribute."""
        return self.names.setdefault(attribute, f"#{len(self.names)}")

    def value(self, av: Av) -> str:
        """What stands for a value."""
        mark = f":{len(self.values)}"
        self.values[mark] = av
        return mark

    def request(self, **expressions: str) -> dict[str, Any]:
        """What goes into the request, without what is empty."""
        given: dict[str, Any] = {name: text for name, text in expressions.items() if text}
        given["ExpressionAttributeNames"] = {mark: name for name, mark in self.names.items()}
        if self.values:
            given["ExpressionAttributeValues"] = self.values
        return given

    # ------------------------------------------------------------ conditions

    def unchanged(self, found: Item | None, new: Mapping[str, Any], key: str) -> list[str]:
        """That an item still is what was read, as far as making it ``new`` would lose."""
        if found is None:
            return [f"attribute_not_exists({self.name(key)})"]
        parts = []
        for attribute in sorted({*found, *new, SIDE}):
            if attribute not in found:
                parts.append(f"attribute_not_exists({self.name(attribute)})")
                continue
            path, av = _told(attribute, found)
            parts.append(f"{'.'.join(map(self.name, path))} = {self.value(av)}")
        return parts

    def changed(self, found: Item, new: Item, key: str) -> str:
        """What makes an item another one, and leaves alone what others may have added."""
        sets = [
            f"{self.name(attribute)}={self.value(av)}"
            for attribute, av in new.items()
            if found.get(attribute) != av and attribute != key
        ]
        gone = [self.name(attribute) for attribute in found if attribute not in new]
        return update(sets, gone)


def _told(attribute: str, found: Item) -> tuple[list[str], Av]:
    """What tells an attribute: of the side its sum, or the stamp of an entry, as not every server
    compares documents."""
    av: Av = found[attribute]
    if attribute == SIDE and Side.of(found).ours:
        for told in (SUM, "stamp"):
            if told in av["M"]:
                return [SIDE, told], av["M"][told]
    return [attribute], av


def update(sets: list[str], gone: list[str]) -> str:
    """An update expression; empty where nothing changes."""
    parts = [f"SET {','.join(sets)}"] if sets else []
    return " ".join([*parts, f"REMOVE {','.join(gone)}"] if gone else parts)


def condition(parts: list[str], id: Value, where: str) -> str:
    """All of these together. Raises TooMuch where that is more than the service takes."""
    text = " AND ".join(parts)
    if len(text) > BYTES or 2 * len(parts) - 1 > OPERATORS:
        raise TooMuch(
            f"{show(id)[:200]}: its item has {len(parts):,} attributes to compare; a condition has "
            f"at most {(OPERATORS + 1) // 2}, in {BYTES:,} bytes",
            where=where,
            hint="cut the block into fewer entries, or put the whole block without expected",
        )
    return text


def unchanged(
    found: Item | None, new: Mapping[str, Any], key: str, id: Value, where: str
) -> dict[str, Any]:
    """What of a request asks that an item still is what was read. Raises TooMuch."""
    made = Expressions()
    return made.request(ConditionExpression=condition(made.unchanged(found, new, key), id, where))


def versioned(found: Item | None, new: Item) -> Item:
    """An item with the version that was read, or a new one where it has attributes that were not
    there."""
    if found is None:
        return new
    version = Side.of(found).more.get("version")
    if new.keys() - found.keys() - {SIDE}:
        version = {"N": str(secrets.randbits(48) or 1)}
    if version is None:
        return new
    side = Side.of(new)
    side.more["version"] = version
    held = side.wire()
    assert held is not None
    return {**new, SIDE: held}
