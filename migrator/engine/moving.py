"""The groups of a source that is written meanwhile: what a live move that gathers is compared by.

Which keys belong together is listed once, as at rest. But a block may come, or go from one group to
another, after its page was listed. So where a group is looked at again, its keys are also those
that the elements of the mirror's block name, and what is met in a group that it has left is noted
for the one where it belongs now. Blocks in quarantine are no part of any; of one that can't be read
the mirror keeps the last copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from migrator.engine.living import living
from migrator.grouping import Group, Groups, Index, Reader, Side, group_of
from migrator.model.block import Address, Aggregate, Block, join
from migrator.model.canonical import encode
from migrator.model.rules import CorruptBlock
from migrator.model.value import Ref, Value
from migrator.ports import Json, Observer, Page
from migrator.retry import Retry
from migrator.route import NOT_MADE, Route, Unread, read_each
from migrator.state import quarantine_key

Aside = Callable[[], frozenset[str]]


class Careful:
    """An observer for which a block that can't be read hides no other. ``check`` raises where a
    listing, which may take long, is to be given up."""

    def __init__(self, observer: Observer, retry: Retry, check: Callable[[], None]) -> None:
        self._observer = observer
        self._retry = retry
        self._check = check

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        self._check()
        return self._observer.page(range_, position, limit)

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        return read_each(self._observer, ids, self._retry)


class _Index(Index):
    """Groups of keys, without strays that are in quarantine."""

    def __init__(self, is_aside: Callable[[Value], bool]) -> None:
        super().__init__()
        self._is_aside = is_aside

    def add_stray(self, id: Value, what: str, path: str = "", *, damaged: bool = False) -> None:
        if not (type(id) is Ref and self._is_aside(id.id)):
            super().add_stray(id, what, path, damaged=damaged)


class Moving(Groups):
    """The groups of ``route``'s source. ``moved`` are those that blocks were found to go to.

    ``lists``: whether all are listed, or only those are known that are asked for.
    """

    def __init__(
        self,
        route: Route,
        target: Observer,
        aside: Aside,
        retry: Retry,
        check: Callable[[], None],
        *,
        lists: bool,
    ) -> None:
        self._route = raw = route.followed
        cls = route.move.source_cls
        reader = Careful(living(raw.source.observer()), retry, check)
        super().__init__(Side(cls, raw.source, reader), group_of(route.translation, cls))
        self._reader = reader
        self._target = Careful(target, retry, check)
        self._aside = aside
        self._known = aside()
        self._lists = lists
        self.moved: dict[bytes, Value] = {}

    def is_aside(self, id: Value) -> bool:
        """Whether a key of the source is in quarantine, as it was when it was last looked at."""
        return bool(self._known) and quarantine_key(id) in self._known

    def learn(self, parts: Iterable[tuple[Value, Value]]) -> None:
        """Note parts, each as the key of its group and its own."""
        self.index.add(parts)

    def _empty(self) -> Index:
        return _Index(self.is_aside)

    def _listed(self, index: Index) -> Index:
        return super()._listed(index) if self._lists else index

    def read(self, ids: Sequence[Value]) -> list[Group | None]:
        self._known = self._aside()
        copies: dict[bytes, list[Aggregate]] = {}
        for id, block in zip(ids, self._target.read(ids), strict=True):
            copies[encode(id)] = made = self._made_of(block)
            self.learn((id, part.id) for part in made)
        self._look_at_strays(ids)
        known = self.index.get(ids)
        read = iter(self._read([keys for keys in known if keys is not None], gone=True))
        found = [None if keys is None else next(read) for keys in known]
        for group in found:
            if group is not None and group.unread:
                there = copies[encode(group.id)]
                group.parts += [part for part in there if encode(part.id) in group.unread]
        return [group if group and (group.parts or group.what) else None for group in found]

    def _made_of(self, block: Block | None) -> list[Aggregate]:
        """The parts that the mirror's block names, as far as it can be read."""
        try:
            if block is None or isinstance(block, Unread):
                return []
            return [join(part) for part in self._route.taken_apart(block, ())]
        except NOT_MADE:
            return []

    def _look_at_strays(self, ids: Sequence[Value]) -> None:
        """What belonged to no group may belong to one by now, or be gone."""
        strays = [keys for keys in self.index.get(ids) if keys is not None and keys.what]
        keys = [stray.id.id for stray in strays if type(stray.id) is Ref]
        for stray, id, block in zip(strays, keys, self._reader.read(keys), strict=True):
            try:
                at = None if block is None or self.is_aside(id) else self._key(join(block))
            except NOT_MADE:
                continue
            self.index.put(stray.id, (), main=False)
            if block is not None and not self.is_aside(id):
                self._moves(at, id)

    def _moves(self, at: Value, id: Value) -> None:
        self.learn([(at, id)])
        self.moved[encode(at)] = at

    def _take_in(self, group: Group, form: bytes, block: Block | None) -> None:
        if block is None:
            return
        try:
            part = join(block)
            if self.is_aside(block.id):
                return
            at = self._key(part)
        except NOT_MADE as error:
            if not self.is_aside(block.id):
                group.what = f"{self._route.source_name(block.id)}: {getattr(error, 'what', error)}"
            elif isinstance(error, CorruptBlock):
                group.unread.add(encode(block.id))
            return
        if encode(at) == form:
            group.parts.append(part)
            group.addresses.append(Address(block.id, block.place))
        else:
            self._moves(at, block.id)


def reading(route: Route, groups: Moving) -> Reader:
    """Who reads these groups as blocks of the mirror."""
    return Reader(route.translation, groups)


__all__ = ["Careful", "Moving", "reading"]
