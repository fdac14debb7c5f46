"""A source whose aggregates are put together for the mirror, seen as a collection of the mirror's.

Each of its blocks is one that the mirror must hold, in the mirror's shape and under its key. So
planning, copying, verifying and going back see one block for one, whatever lies behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

from migrator.errors import DoesNotFit
from migrator.grouping.groups import Group, Groups, KeyOf, Side
from migrator.model.block import Address, Aggregate, Block, cut, join
from migrator.model.canonical import encode
from migrator.model.rules import Representation
from migrator.model.translate import Translation
from migrator.model.value import Ref, Value
from migrator.ports import Collection, Json, Observer, Page, Statistics


class Reader:
    """Reads the groups of a source as blocks of the mirror.

    A block that can't be put together has no entries; its ``place`` tells why, and at which
    path.
    """

    def __init__(self, translation: Translation, groups: Groups) -> None:
        self._translation = translation
        self._groups = groups

    def split(self, parts: int) -> list[Json]:
        bounds: list[Json] = [form.hex() for form in self._groups.index.bounds(parts)]
        return [list(pair) for pair in zip([None, *bounds], [*bounds, None], strict=True)]

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        low, high = _bounds(range_)
        found, after = self._groups.page(low if position is None else _form(position), high, limit)
        return self._page(found, None if after is None else after.hex())

    def _page(self, found: Sequence[Group], after: Json = None) -> Page:
        page = Page([], after)
        for group in found:
            if group.damaged:
                page.damaged.append((group.id, group.what))
            else:
                page.blocks.append(self._block(group))
        return page

    def members(self, range_: Json, position: Json, limit: int) -> tuple[int, list[Value], Json]:
        """How many groups come next, with about ``limit`` parts, the keys of these, and where to go
        on; what belongs to none is a group of its own."""
        low, high = _bounds(range_)
        low = low if position is None else _form(position)
        found, after = self._groups.listed(low, high, limit, limit)
        keys = [part for group in found for part in group.parts]
        keys += [group.id.id for group in found if group.what and type(group.id) is Ref]
        return len(found), keys, None if after is None else after.hex()

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        return [None if group is None else self._block(group) for group in self._groups.read(ids)]

    def _block(self, group: Group) -> Block:
        if group.what:
            return Block(group.id, {}, place=[group.what, group.path])
        try:
            whole = self._translation.together(group.id, group.parts, group.main)
        except DoesNotFit as error:
            return Block(group.id, {}, place=[error.what, error.path])
        return cut(whole, self._translation.target)


class Gathered(Reader):
    """The whole source; ``sides`` are its collections: that of the parts, and that of the mains.

    ``rules`` are their representations.
    """

    def __init__(
        self,
        translation: Translation,
        parts: Side,
        rules: Representation,
        mains: Side | None = None,
    ) -> None:
        super().__init__(translation, self._grouped(translation, parts, mains))
        self._parts = parts
        self._mains = mains
        self._rules = rules
        self.at = (mains or parts).collection.at
        self.cls = translation.move.cls

    @staticmethod
    def _grouped(translation: Translation, parts: Side, mains: Side | None) -> Groups:
        return Groups(parts, group_of(translation, parts.cls), mains)

    @property
    def _all(self) -> list[Side]:
        return [self._parts] if self._mains is None else [self._mains, self._parts]

    @property
    def behind(self) -> list[Collection]:
        """The collections that it is put together of."""
        return [side.collection for side in self._all]

    def observer(self) -> Observer:
        sides = [Side(s.cls, s.collection, s.collection.observer()) for s in self._all]
        mains = sides[0] if len(sides) > 1 else None
        return Reader(self._translation, self._grouped(self._translation, sides[-1], mains))

    # ------------------------------------------------------------------ the whole of it

    def exists(self) -> bool:
        return all(side.collection.exists() for side in self._all)

    def create(self) -> None:
        for side in self._all:
            side.collection.create()

    def drop(self) -> None:
        for side in self._all:
            side.collection.drop()

    def settle(self) -> None:
        for side in self._all:
            side.collection.settle()

    def schema(self) -> Json:
        return [side.collection.schema() for side in self._all]

    def findings(self) -> Iterator[tuple[str, str, str]]:
        for side in self._all:
            yield from side.collection.findings()

    def count(self) -> int:
        return self._groups.index.count()

    def blocks_behind(self) -> int:
        """The number of blocks that lie behind, counted now."""
        return sum(side.collection.count() for side in self._all if side.collection.exists())

    def statistics(self) -> Statistics:
        bytes_ = sum(side.collection.statistics().bytes for side in self._all)
        return Statistics(self.count(), bytes_, exact=True)

    def sample(self, size: int) -> Page:
        return self._page(self._groups.sample(size))

    # ------------------------------------------------------------------ the way back

    def write(self, blocks: Sequence[Block]) -> int:
        """Make each group what the mirror's block says. Returns the bytes sent.

        What a group no longer has is deleted, unless another of these blocks has it now.
        """
        mains: list[Block] = []
        parts: dict[bytes, Block] = {}
        gone: dict[bytes, Address] = {}
        now: list[tuple[Value, list[Value]]] = []
        olds = self._groups.read([block.id for block in blocks])
        for block, old in zip(blocks, olds, strict=True):
            held = old or Group(block.id)
            main, made = self._translation.apart(join(block), held.parts, held.main)
            if main is not None:
                mains.append(cut(main, self._translation.source))
            parts.update((encode(part.id), cut(part, self._rules)) for part in made)
            gone.update((encode(address.id), address) for address in held.addresses)
            now.append((block.id, [part.id for part in made]))
        sent = self._mains.collection.write(mains) if self._mains is not None and mains else 0
        sent += self._parts.collection.write(list(parts.values())) if parts else 0
        left = [address for form, address in gone.items() if form not in parts]
        if left:
            self._parts.collection.delete(left)
        for id, ids in now:
            self._groups.index.put(id, ids, main=self._mains is not None)
        return sent

    def delete(self, addresses: Iterable[Address]) -> None:
        """Remove all that lies behind these blocks."""
        for group in self._groups.read([address.id for address in addresses]):
            if group is None:
                continue
            if group.parts:
                self._parts.collection.delete(group.addresses)
            if self._mains is not None and group.main is not None:
                self._mains.collection.delete([Address(group.id)])
            self._groups.index.put(group.id, (), main=False)


def group_of(translation: Translation, cls: str) -> KeyOf:
    """What tells the group of a part, an aggregate of the class ``cls``."""

    def key(part: Aggregate) -> Value:
        return translation.affects(part.id, part.value, of=cls)[0]

    return key


def _bounds(range_: Json) -> tuple[bytes | None, bytes | None]:
    low, high = cast("tuple[Json, Json]", range_)
    return (None if low is None else _form(low), None if high is None else _form(high))


def _form(position: Json) -> bytes:
    return bytes.fromhex(str(position))


def gathered(translation: Translation, source: Collection, merged: Collection | None) -> Collection:
    """The source of a move that gathers, as the blocks that the mirror must hold."""
    move = translation.move
    if translation.merged is None:
        parts = Side(move.source_cls, source, source)
        return cast("Collection", Gathered(translation, parts, translation.source))
    assert merged is not None
    of = translation.merged.of
    rules = merged.at.rules(of)
    mains = Side(move.source_cls, source, source)
    return cast("Collection", Gathered(translation, Side(of, merged, merged), rules, mains))
