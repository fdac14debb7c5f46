"""How a location would hold the values of a block: what is refused, and what travels tagged.

Where a move says that values may not travel tagged, plan, copy and verification ask ``Tags``
here which of them would.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal

from migrator.errors import DoesNotFit
from migrator.model.block import Block
from migrator.model.path import child
from migrator.model.rules import PatternStep, general_path, lies_below, parse_pattern
from migrator.model.value import Kind, Value, kind_of
from migrator.ports import ByPath, Capabilities, Collection, Held, How

CONTAINERS = frozenset({Kind.RECORD, Kind.LIST, Kind.SET})
general = lru_cache(maxsize=4096)(general_path)


class Holding:
    """Which values of a collection are not held as what they are."""

    def __init__(self, collection: Collection, kinds: Mapping[Kind, Held]) -> None:
        self._needs_tag = collection.needs_tag
        self._at = collection.needs_tag_at if isinstance(collection, ByPath) else None
        self._kinds = kinds

    def odd(self, path: str, value: Value) -> Iterator[tuple[str, Kind, Held]]:
        """Where in an entry something is tagged or refused, by general path."""
        return self._odd(general(path), value)

    def _odd(self, path: str, value: Value) -> Iterator[tuple[str, Kind, Held]]:
        kind = kind_of(value)
        held = self._needs_tag(value)
        if held is None and self._at is not None and kind in CONTAINERS:
            held = self._at(path, value)
        held = held or self._kinds[kind]
        if held.how is not How.NATIVE:
            yield path, kind, held
        if kind is Kind.RECORD:
            for name, item in value.items():  # type: ignore[attr-defined]
                yield from self._odd(child(path, name), item)
        elif kind is Kind.LIST or kind is Kind.SET:
            for item in value:  # type: ignore[attr-defined]
                yield from self._odd(path + "[*]", item)


class Tags:
    """What a move says of tagged values: anywhere, nowhere, or at and below some paths."""

    def __init__(
        self,
        declared: Literal["accept", "refuse"] | Sequence[str],
        collection: Collection,
        capabilities: Capabilities,
    ) -> None:
        self.anywhere = declared == "accept"
        paths = () if isinstance(declared, str) else declared
        self._patterns = [parse_pattern(path) for path in paths]
        self._holding = Holding(collection, capabilities.kinds)
        self._why = f"would travel tagged to {collection.at}, which the move does not allow"
        self._allowed = lru_cache(maxsize=4096)(self._look)

    def _look(self, path: str) -> bool:
        steps: Sequence[PatternStep] = parse_pattern(path) if path else ()
        return any(lies_below(pattern, steps) for pattern in self._patterns)

    def unwanted(self, block: Block) -> Iterator[tuple[str, str]]:
        """Values that would travel tagged and may not: general path, and why in words."""
        if self.anywhere:
            return
        for entry, value in block.entries.items():
            for path, kind, held in self._holding.odd(entry, value):
                if held.how is How.TAGGED and not self._allowed(path):
                    yield path, f"{kind} {self._why}"

    def check(self, block: Block, source: Value, where: str) -> None:
        """Raise DoesNotFit, naming the source's block, for a value that may not travel so."""
        for path, why in self.unwanted(block):
            raise DoesNotFit(
                why, key=source, path=path, where=where,
                hint="Convert it, or name its path in tagged=[...] of the move",
            )  # fmt: skip
