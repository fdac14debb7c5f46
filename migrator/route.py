"""A move with both its ends open: what planning, backfill and verification walk along."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar, cast

from migrator.archive import Archive
from migrator.errors import DamagedBlock, DoesNotFit, Refused
from migrator.grouping import Gathered, gathered
from migrator.holding import Tags
from migrator.model.block import Aggregate, Block, cut, join, name
from migrator.model.canonical import encode
from migrator.model.ending import Ending
from migrator.model.evolution import AddDefault, ChangeId, Convert, Keep, ReKey
from migrator.model.masked import masked
from migrator.model.move import At, Move
from migrator.model.path import Steps, parse_path
from migrator.model.rules import (
    CorruptBlock,
    Representation,
    parse_pattern,
    pattern_matches,
)
from migrator.model.translate import Translation
from migrator.model.value import Record, Ref, Value
from migrator.ports import Collection, FieldsEnd, Json, Observer, Page, Store
from migrator.referring import referring
from migrator.retry import Retry

Item = TypeVar("Item")

NOT_MADE = (CorruptBlock, DoesNotFit, Refused)
"""Why a block makes none on the other side: what ``Route.expected`` raises."""


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
    archive: Archive | None = None

    @property
    def cls(self) -> str:
        return self.move.cls

    @property
    def in_process(self) -> bool:
        """Whether both sides only compute here, so that threads would just take turns."""
        return all(s.capabilities.in_process for s in (self.source_store, self.target_store))

    @property
    def gathers(self) -> bool:
        """Whether several blocks of the source make one: ``source`` then gives them made, but for
        who follows the move."""
        return self.translation.gathers

    @property
    def followed(self) -> Route:
        """The same move as who follows its touches sees it: the source's blocks as they lie."""
        if not isinstance(self.source, Gathered) or self.translation.merged is not None:
            return self
        return replace(self, source=self.source.behind[-1], passes_through=False)

    def side(self, side: str) -> Collection:
        """The collection of a side, ``source`` or ``target``."""
        return self.source if side == "source" else self.target

    @property
    def spreads(self) -> bool:
        """Whether a block of the source makes several, or none."""
        return self.translation.spreads

    def source_blocks(self) -> int:
        """The number of blocks that the source holds now, as they lie there."""
        if isinstance(self.source, Gathered):
            return self.source.blocks_behind()
        return self.source.count()

    @property
    def changes_key(self) -> bool:
        """Whether the blocks of ``source`` and of ``target`` have different keys."""
        return self.translation.changes_key and not isinstance(self.source, Gathered)

    @property
    def also_reads(self) -> At | None:
        """The second location that the source is made of, where there is one."""
        return None if self.translation.merged is None else self.translation.merged.at

    def name(self, id: Value) -> str:
        """How a block of this move is named to people."""
        return name(self.cls, id)

    def source_name(self, id: Value) -> str:
        """How a block of the source is named to people."""
        if isinstance(self.source, Gathered):
            return str(id) if type(id) is Ref else self.name(id)  # a part that belongs nowhere
        return name(self.move.source_cls, id)

    @cached_property
    def tags(self) -> Tags:
        """What the move says of values that would travel tagged."""
        target = self.move.target
        capabilities = self.target_store.capabilities.at(target.layout)
        return Tags(self.move.tagged, self.target, capabilities)

    @cached_property
    def ending(self) -> Ending:
        """The fields that hold deadlines of others, by the words of either side."""
        sides = (side for side in (self.source, self.target) if isinstance(side, FieldsEnd))
        return {name: of for side in sides for name, of in side.ending.items()}

    def expected(self, block: Block) -> list[Block]:
        """The blocks that the target must hold for a block of the source.

        Raises one of NOT_MADE: as ``made``, and DoesNotFit for a value that may not travel tagged.
        Where ``gathers`` is followed no block of the source tells that alone: see ``gathered``.
        """
        made = self.made(block)
        if not self.tags.anywhere:
            for new in made:
                self.tags.check(new, block.id, self.source_name(block.id))
        return made

    def made(self, block: Block) -> list[Block]:
        """The blocks that a block of the source becomes, whatever the target may hold.

        Raises CorruptBlock for entries that give no aggregate, DoesNotFit for a value that an
        evolution can't take, Refused for one that the representation can't cut.
        """
        if self.passes_through:
            if self.gathers and not block.entries:
                raise _not_gathered(block)
            return [block]
        aggregate = join(block)
        if self.translation.identity:
            return [cut(aggregate, self.representation)]
        return [cut(new, self.representation) for new in self.translation.forward(aggregate)]

    def leads_to(self, block: Block) -> list[Value]:
        """The keys of the target that a block of the source leads to. Raises one of NOT_MADE."""
        if not (self.gathers and self.changes_key):
            return [new.id for new in self.expected(block)]
        return self.translation.affects(block.id, join(block).value)

    def gathered(self, id: Value, parts: Sequence[Aggregate]) -> Block:
        """The block of the target that these aggregates of the source make. Raises as
        ``expected``."""
        made = cut(self.translation.together(id, parts), self.representation)
        if not self.tags.anywhere:
            self.tags.check(made, id, self.name(id))
        return made

    def taken_apart(self, block: Block, olds: Sequence[Aggregate]) -> list[Block]:
        """The blocks of the source that one of the target is made of; ``olds`` is what the source
        holds of them. Raises CorruptBlock or DoesNotFit."""
        _, parts = self.translation.apart(join(block), olds)
        return [cut(part, self.translation.source) for part in parts]

    def sources(self, block: Block) -> list[Value]:
        """The keys of the source that a block of the target comes from."""
        if not self.changes_key:
            return [block.id]
        return list(self.translation.sources(block.id, join(block).value))

    def returned(self, block: Block, old: Aggregate | None, kept: Record | None = None) -> Block:
        """The block of ``source`` that a block of the target leads back to.

        ``old`` is what the source holds, ``kept`` what the archive has where it holds nothing.
        Raises DoesNotFit. Not for a move that spreads.
        """
        if self.gathers:
            return block
        back = self.translation.backward(join(block), old, kept)
        return cut(back, self.translation.source)

    def put_together(
        self,
        id: Value,
        parts: Sequence[Block],
        old: Aggregate | None,
        fresh: Iterable[bytes] = (),
    ) -> Block | None:
        """Of a move that spreads: the block of ``source`` that these of the target are parts of.

        The rest is as in ``Translation.returned``. Raises DoesNotFit.
        """
        news = [join(part) for part in parts]
        back = self.translation.returned(id, news, old, frozenset(fresh))
        return None if back is None else cut(back, self.translation.source)

    def why(self, error: Exception) -> tuple[str, str]:
        """Why a block does not go over, and at which path; as ``told``."""
        path = getattr(error, "path", "")
        return self.told(getattr(error, "what", str(error)), path), path

    def told(self, reason: str, path: str = "") -> str:
        """A reason for what stands at a path (none for all of a block), without what it may hold
        of a value there that must never be shown."""
        return masked(reason) if self.move.sensitive and self.is_sensitive(path) else reason

    def is_sensitive(self, path: str) -> bool:
        """Whether the value at a path must never be shown.

        Where an evolution may have taken what is sensitive to another path, no value is.
        """
        if self.move.sensitive and not all(isinstance(e, _IN_PLACE) for e in self.move.evolve):
            return True
        return self.declares_sensitive(path)

    def declares_sensitive(self, path: str) -> bool:
        """Whether the move says so of a path of its source."""
        try:
            steps = parse_path(path) if path and not path.startswith("(") else ()
        except ValueError:
            return True  # a store names other places, and nobody knows what lies there
        return any(_begins(pattern, steps) for pattern in self.move.sensitive)


_IN_PLACE = (AddDefault, ChangeId, Convert, Keep, ReKey)


def beside(one: Route, other: Route) -> bool:
    """Whether two moves have the same blocks for their source."""
    at, there = one.source_at, other.source_at
    return (at.store, at.collection, one.move.source_cls) == (
        there.store, there.collection, other.move.source_cls
    )  # fmt: skip


def _not_gathered(block: Block) -> DoesNotFit:
    """The error for a block that could not be put together; its place tells why."""
    what, path = cast("list[str]", block.place)
    return DoesNotFit(what, key=block.id, path=path)


def _begins(pattern: str, steps: Steps) -> bool:
    """Whether a path lies at or below a pattern, or above it (and so shows what is below)."""
    wanted = parse_pattern(pattern)
    shared = min(len(wanted), len(steps))
    return pattern_matches(wanted[:shared], steps[:shared])


def open_route(number: int, move: Move, source_at: At, store: Callable[[str], Store]) -> Route:
    """Open both ends of a move. Raises Refused where script and stores do not fit."""
    source_store, target_store = store(source_at.store), store(move.target.store)
    source_rules, target_rules = source_at.rules(move.source_cls), move.target.rules(move.cls)
    translation = Translation(move, source_rules, target_rules)
    source = referring(source_store.collection(move.source_cls, source_at))
    if translation.gathers:
        source = gathered(translation, source, _merged(translation, store))
    return Route(
        number,
        move,
        source_at,
        source,
        referring(target_store.collection(move.cls, move.target)),
        source_store,
        target_store,
        translation,
        target_rules,
        translation.gathers or (translation.identity and source_rules.rules == target_rules.rules),
        _archive(move, translation, store),
    )


def _archive(move: Move, translation: Translation, store: Callable[[str], Store]) -> Archive | None:
    """The archive of a move, where it has one. Raises Refused for one that can't be."""
    at = move.archive
    if at is None:
        return None
    opened = store(at.store)
    collection = opened.collection(move.source_cls, at)
    return Archive(at, collection, opened, at.rules(move.source_cls), translation)


def _merged(translation: Translation, store: Callable[[str], Store]) -> Collection | None:
    """The collection that is merged into the source, where one is."""
    merged = translation.merged
    if merged is None or merged.at is None:
        return None
    return referring(store(merged.at.store).collection(merged.of, merged.at))


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


@dataclass(slots=True)
class Unread(Block):
    """What stands for a block that can't be read, and why; it has no entries."""

    reason: str = ""


def read_each(reader: Observer, ids: Sequence[Value], retry: Retry) -> list[Block | None]:
    """The blocks of some keys, in their order; one that can't be read is ``Unread`` and does not
    hide the others. A key that the reader's store can't hold is that of no block."""
    ids = list(ids)
    try:
        return retry(reader.read, ids)
    except (DamagedBlock, CorruptBlock) as error:
        if len(ids) == 1:
            return [Unread(ids[0], {}, reason=getattr(error, "what", str(error)))]
    except DoesNotFit:
        if len(ids) == 1:
            return [None]
    half = len(ids) // 2
    return [*read_each(reader, ids[:half], retry), *read_each(reader, ids[half:], retry)]


def ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The same items; while one is in work the next is got, by a thread of its own.

    One item more is in memory. That pays where getting it, or the work, waits for a server or a
    disk; where both only compute, they take turns. Closing waits for an item that is being got.
    """
    end = object()

    def get() -> Item | object:
        return next(items, end)

    with ThreadPoolExecutor(1, thread_name_prefix="ahead") as executor:
        coming = executor.submit(copy_context().run, get)
        while (item := coming.result()) is not end:
            coming = executor.submit(copy_context().run, get)
            yield cast("Item", item)


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
    wanted = {encode(key): key for each in keys for key in each}
    read = read_each(source, list(wanted.values()), retry)
    found = {encode(b.id): b for b in read if b is not None}
    mapped = _Mapped(route)
    return [
        next((k for k in each if mapped.to(found.get(encode(k)), block)), None)
        for block, each in zip(blocks, keys, strict=True)
    ]


def _sources(route: Route, block: Block) -> list[Value]:
    try:
        return route.sources(block)
    except (CorruptBlock, DoesNotFit):
        return []  # it can't have come from the source


class _Mapped:
    """Tells whether blocks of the source map to a block; each of them is cut once."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._keys: dict[bytes, set[bytes] | None] = {}

    def to(self, source: Block | None, block: Block) -> bool:
        if source is None or not self._route.changes_key:
            return source is not None
        form = encode(source.id)
        if form not in self._keys:
            self._keys[form] = self._of(source)
        keys = self._keys[form]
        # Where it can't be told, what may be needed is not deleted.
        return keys is None or encode(block.id) in keys

    def _of(self, source: Block) -> set[bytes] | None:
        try:
            return set(map(encode, self._route.leads_to(source)))
        except NOT_MADE:
            return None
