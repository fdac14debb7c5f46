"""Aggregates in groups: each group is read whole, from the keys that an index holds for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from migrator.errors import DoesNotFit
from migrator.grouping.index import Index, Keys
from migrator.model.block import Address, Aggregate, Block, join
from migrator.model.canonical import encode
from migrator.model.rules import CorruptBlock
from migrator.model.value import Ref, Value
from migrator.ports import Collection, Observer
from migrator.retry import Retry

PAGE = 1_000
# A page of groups ends where it holds so many parts, so that memory is bounded by them.
MOST_PARTS = 10_000

KeyOf = Callable[[Aggregate], Value]


@dataclass(frozen=True)
class Side:
    """One collection that groups are read from: the collection, and who reads it."""

    cls: str
    collection: Collection
    reader: Observer


@dataclass
class Group:
    """One group as it is now, and where its parts lie, as ``parts`` goes.

    ``what`` and ``path``: why it can't be one. ``unread``: keys of parts, by canonical form, that
    can't be read, and are known not to be.
    """

    id: Value
    parts: list[Aggregate] = field(default_factory=list)
    addresses: list[Address] = field(default_factory=list)
    main: Aggregate | None = None
    what: str = ""
    path: str = ""
    damaged: bool = False
    unread: set[bytes] = field(default_factory=set)


class Groups:
    """The groups of a collection, by the key that ``key`` gives for each part.

    With ``mains``, each of its aggregates is a group, too, by its own key. Which keys belong
    together is found by listing everything once, when it is first asked for; what a group holds
    is read anew each time, and what belongs elsewhere by then is left out.
    """

    def __init__(self, parts: Side, key: KeyOf, mains: Side | None = None) -> None:
        self._sides = parts, mains
        self._key = key
        self._index: Index | None = None
        self._lock = threading.Lock()

    @property
    def index(self) -> Index:
        """The keys of all groups."""
        with self._lock:
            if self._index is None:
                self._index = self._listed(self._empty())
            return self._index

    def _empty(self) -> Index:
        return Index()

    def _listed(self, index: Index) -> Index:
        parts, mains = self._sides
        for blocks in self._blocks(parts, index):
            rows = []
            for block in blocks:
                try:
                    rows.append((self._key(join(block)), block.id))
                except (CorruptBlock, DoesNotFit) as error:
                    what, path = getattr(error, "what", str(error)), getattr(error, "path", "")
                    index.add_stray(Ref(parts.cls, block.id), what, path)
            index.add(rows)
        if mains is not None:
            for blocks in self._blocks(mains, index):
                index.add_mains(block.id for block in blocks)
        return index

    @staticmethod
    def _blocks(side: Side, index: Index) -> Iterator[list[Block]]:
        """All blocks of a side; those that can't be read are noted."""
        retry = Retry()
        for range_ in retry(side.collection.split, 1):
            position = None
            while True:
                page = retry(side.reader.page, range_, position, PAGE)
                for id, reason in page.damaged:
                    index.add_stray(Ref(side.cls, id), reason, damaged=True)
                yield page.blocks
                position = page.next
                if position is None:
                    break

    def page(
        self, low: bytes | None, high: bytes | None, limit: int
    ) -> tuple[list[Group], bytes | None]:
        """Some groups after a form and up to another, and the form to go on after."""
        found, after = self.listed(low, high, limit)
        return self._read(found), after

    def listed(
        self, low: bytes | None, high: bytes | None, limit: int, parts: int = MOST_PARTS
    ) -> tuple[list[Keys], bytes | None]:
        """The same, their keys alone, and with about so many parts."""
        found = self.index.after(low, high, limit, parts)
        more = bool(found) and self.index.has_more(found[-1].form, high)
        return found, found[-1].form if more else None

    def sample(self, limit: int) -> list[Group]:
        """Groups from all over."""
        return self._read(self.index.sample(limit, 10 * MOST_PARTS))

    def read(self, ids: Sequence[Value]) -> list[Group | None]:
        """The groups of these keys, in their order."""
        known = self.index.get(ids)
        read = iter(self._read([keys for keys in known if keys is not None], gone=True))
        found = [None if keys is None else next(read) for keys in known]
        return [group if group and _is_there(group) else None for group in found]

    def _read(self, found: Sequence[Keys], *, gone: bool = False) -> list[Group]:
        """Groups with what they hold now; those without anything are left out, or ``gone``."""
        parts, mains = self._sides
        blocks = _read(parts, [id for keys in found for id in keys.parts])
        held = iter(blocks)
        main = iter(_read(mains, [k.id for k in found if k.main]) if mains is not None else ())
        groups = []
        for keys in found:
            group = Group(keys.id, what=keys.what, path=keys.path, damaged=keys.damaged)
            for block in [next(held) for _ in keys.parts]:
                self._take_in(group, keys.form, block)
            if keys.main:
                block = next(main)
                self._take_main(group, block)
            groups.append(group)
        return [group for group in groups if gone or _is_there(group)]

    def _take_in(self, group: Group, form: bytes, block: Block | None) -> None:
        """Put a part into its group, unless it is gone or belongs to another one by now."""
        if block is None:
            return
        try:
            part = join(block)
            if encode(self._key(part)) == form:
                group.parts.append(part)
                group.addresses.append(Address(block.id, block.place))
        except (CorruptBlock, DoesNotFit) as error:
            group.what = f"{Ref(self._sides[0].cls, block.id)}: {getattr(error, 'what', error)}"

    def _take_main(self, group: Group, block: Block | None) -> None:
        if block is None:
            return
        try:
            group.main = join(block)
        except CorruptBlock as error:
            group.what, group.damaged = str(error), True


def _is_there(group: Group) -> bool:
    return bool(group.parts or group.main or group.what)


def _read(side: Side, ids: Sequence[Value]) -> list[Block | None]:
    found: list[Block | None] = []
    for start in range(0, len(ids), PAGE):
        found += side.reader.read(ids[start : start + PAGE])
    return found
