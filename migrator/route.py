"""A move with both its ends open: what planning, backfill and verification walk along."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass

from migrator.errors import DoesNotFit
from migrator.model.block import Block, cut, join, name
from migrator.model.canonical import encode
from migrator.model.evolution import AddDefault, ChangeId, Convert
from migrator.model.move import At, Move
from migrator.model.path import Steps, parse_path
from migrator.model.rules import (
    CorruptBlock,
    Representation,
    parse_pattern,
    pattern_matches,
)
from migrator.model.translate import Translation
from migrator.model.value import Value
from migrator.ports import Collection, Json, Observer, Page, Store
from migrator.referring import referring
from migrator.retry import Retry


@dataclass
class Route:
    """One move, opened."""

    number: int
    move: Move
    source_at: At
    source: Collection
    target: Collection
    source_store: Store
    target_store: Store
    translation: Translation
    representation: Representation
    passes_through: bool

    @property
    def cls(self) -> str:
        return self.move.cls

    def name(self, id: Value) -> str:
        """How a block of this move is named to people."""
        return name(self.cls, id)

    def expected(self, block: Block) -> list[Block]:
        """The blocks that the target must hold for a block of the source.

        Raises CorruptBlock for entries that give no aggregate, DoesNotFit for a value that an
        evolution can't take.
        """
        if self.passes_through:
            return [block]
        aggregate = join(block)
        if self.translation.identity:
            return [cut(aggregate, self.representation)]
        return [cut(new, self.representation) for new in self.translation.forward(aggregate)]

    def sources(self, block: Block) -> list[Value]:
        """The keys of the source that a block of the target comes from."""
        if not self.translation.changes_key:
            return list(self.translation.sources(block.id, {}))
        return list(self.translation.sources(block.id, join(block).value))

    def is_sensitive(self, path: str) -> bool:
        """Whether the value at a path must never be shown.

        Where an evolution may have taken what is sensitive to another path, no value is.
        """
        if self.move.sensitive and not all(isinstance(e, _IN_PLACE) for e in self.move.evolve):
            return True
        steps = parse_path(path) if path and not path.startswith("(") else ()
        return any(_begins(pattern, steps) for pattern in self.move.sensitive)


_IN_PLACE = (AddDefault, ChangeId, Convert)


def _begins(pattern: str, steps: Steps) -> bool:
    """Whether a path lies at or below a pattern, or above it (and so shows what is below)."""
    wanted = parse_pattern(pattern)
    shared = min(len(wanted), len(steps))
    return pattern_matches(wanted[:shared], steps[:shared])


def open_route(number: int, move: Move, source_at: At, store: Callable[[str], Store]) -> Route:
    """Open both ends of a move. Raises Refused where script and stores do not fit."""
    source_store, target_store = store(source_at.store), store(move.target.store)
    source_rules, target_rules = source_at.rules(move.cls), move.target.rules(move.cls)
    translation = Translation(move, source_rules, target_rules)
    return Route(
        number,
        move,
        source_at,
        referring(source_store.collection(move.cls, source_at)),
        referring(target_store.collection(move.cls, move.target)),
        source_store,
        target_store,
        translation,
        target_rules,
        translation.identity and source_rules.rules == target_rules.rules,
    )


def pages(
    reader: Observer, range_: Json, position: Json, limit: int, retry: Retry
) -> Iterator[Page]:
    """The pages of a range from a position to its end."""
    while True:
        page = retry(reader.page, range_, position, limit)
        yield page
        if page.next is None:
            return
        position = page.next


def pages_ahead(
    reader: Observer, range_: Json, position: Json, limit: int, retry: Retry
) -> Iterator[Page]:
    """As ``pages``; while one is in work the next is read.

    One page more is in memory. That pays where the work waits for another store, as a copy
    does; where it is computing, as in verification, the two only take turns. Closing the
    iterator waits for a page that is being read.
    """
    following = pages(reader, range_, position, limit, retry)
    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as executor:
        ahead = executor.submit(copy_context().run, next, following)
        while True:
            page = ahead.result()
            if page.next is not None:
                ahead = executor.submit(copy_context().run, next, following)
            yield page
            if page.next is None:
                return


def is_empty(collection: Collection, retry: Retry) -> bool:
    """Whether a collection is not there, or holds no block."""
    return not retry(collection.exists) or not retry(collection.count)


def extra_blocks(route: Route, blocks: list[Block], retry: Retry) -> list[Block]:
    """Those blocks of the target that no block of the source accounts for."""
    there = accounted(route, blocks, route.source, retry)
    return [block for block, has_source in zip(blocks, there, strict=True) if has_source is None]


def accounted(
    route: Route, blocks: Sequence[Block], source: Observer, retry: Retry
) -> list[Value | None]:
    """For each block of the target the key of the source block that maps to it, None for none.

    It is not enough that the source has the key that leads back: what lies there may map to
    another block by now.
    """
    keys = [_sources(route, block) for block in blocks]
    read = retry(source.read, [key for each in keys for key in each])
    found = {encode(b.id): b for b in read if b is not None}
    return [
        next((k for k in each if _maps(route, found.get(encode(k)), block)), None)
        for block, each in zip(blocks, keys, strict=True)
    ]


def _sources(route: Route, block: Block) -> list[Value]:
    try:
        return route.sources(block)
    except (CorruptBlock, DoesNotFit):
        return []  # it can't have come from the source


def _maps(route: Route, source: Block | None, block: Block) -> bool:
    if source is None or not route.translation.changes_key:
        return source is not None
    try:
        return encode(block.id) in {encode(new.id) for new in route.expected(source)}
    except (CorruptBlock, DoesNotFit):
        return True  # it can't be told, and what may be needed is not deleted
