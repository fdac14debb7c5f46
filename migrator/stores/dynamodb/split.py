"""Layout ``item-split``: a block is one item, and one that is too large for that lies in an item
collection beside, ``<table>.large``.

The rule by which anybody finds a block: the table of items first; only where it has no item of that
key, the collection beside. So one request makes a block small or large for all readers at once: the
put of its item, or the item's removal behind a collection that is whole by then. What a writer that
was stopped leaves beside an item is no block, and goes with the next write of that key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from migrator.errors import DoesNotFit, Refused
from migrator.exchange import Change, made_of
from migrator.model.block import Address, Block, Patch
from migrator.model.canonical import encode
from migrator.model.move import At, Layout
from migrator.model.rules import Entries
from migrator.model.value import Value
from migrator.ports import (
    Held,
    Json,
    Metered,
    Observer,
    Page,
    Rates,
    Statistics,
    Units,
    one_page,
)
from migrator.retry import request as by_retry
from migrator.stores.dynamodb.collection import ItemCollection
from migrator.stores.dynamodb.gathered_collection import GatheredCollection
from migrator.stores.dynamodb.options import GATHERED, Options, options_of
from migrator.stores.dynamodb.patching import Absent
from migrator.stores.dynamodb.splitting import SplitTransactor
from migrator.stores.dynamodb.table import Write
from migrator.stores.dynamodb.wire import Wire

if TYPE_CHECKING:
    from migrator.journal import Journal, Note

LARGE = ".large"
_PAGE = 1000
_T = TypeVar("_T")


class SplitCollection:
    """The blocks of one class: items of one table, and those that are too large in another."""

    def __init__(self, store: str, wire: Wire, cls: str, at: At, options: Options) -> None:
        self.at = at
        self.cls = cls
        self._small = ItemCollection(store, wire, cls, at, options)
        given = dict(at.layout.options) if at.layout is not None else {}
        given = {name: option for name, option in given.items() if name not in ("key", "most")}
        layout = Layout(GATHERED, {"pk": "{id}", **given})
        place = At(at.store, at.collection + LARGE, at.representation, layout)
        # What is one key to the table of items has one place beside, whatever its kind.
        beside = replace(options_of(place, GATHERED), told_by=options.hash.type)
        self._large = GatheredCollection(store, wire, cls, place, beside)
        self._most = options.most
        self._transactor = SplitTransactor(self._small, self._large, f"{store}:{at.collection}")
        self._measured = 0
        self._is_there = False

    # ------------------------------------------------------------ the collection itself

    def exists(self) -> bool:
        return self._small.exists()

    def create(self) -> None:
        # Items are read first, so their table comes last, and goes last.
        by_retry(self._large.create)
        by_retry(self._small.create)

    def drop(self) -> None:
        self._is_there = False
        by_retry(self._large.drop)
        by_retry(self._small.drop)

    def _there(self) -> bool:
        """Whether there is a table beside: not where the items were somebody else's so far."""
        self._is_there = self._is_there or by_retry(self._large.exists)
        return self._is_there

    def schema(self) -> Json:
        small = by_retry(self._small.schema)
        return None if small is None else {"items": small, "large": by_retry(self._large.schema)}

    def findings(self) -> Iterable[tuple[str, str, str]]:
        yield from by_retry(lambda: list(self._small.findings()))
        for severity, code, text in by_retry(lambda: list(self._large.findings())):
            if severity in ("error", "warning"):
                yield severity, code, f"{self._large.at.collection}: {text}"

    def target_findings(self, blocks: int, size: int) -> Iterable[tuple[str, str, str]]:
        if self._measured:
            yield (
                "note",
                "dynamodb-split",
                f"{self._measured:,} blocks are over the {self._most:,} bytes of an item and "
                f"lie in {self._large.at.collection}, an item for each entry: who finds no item "
                "of a key looks there",
            )

    def count(self) -> int:
        total, position = by_retry(self._small.count), None
        while self._there():
            ids, position = self._large.keys(None, position, _PAGE)
            total += len(self._beside(ids, lambda id: id))
            if position is None:
                break
        return total

    def statistics(self) -> Statistics:
        small = by_retry(self._small.statistics)
        if not self._there():
            return small
        large = by_retry(self._large.statistics)
        exact = small.exact and large.exact
        return Statistics(small.blocks + large.blocks, small.bytes + large.bytes, exact)

    def settle(self) -> None:
        """DynamoDB has neither sequences nor statistics to mend."""

    # ------------------------------------------------------------ reading

    def split(self, parts: int) -> list[Json]:
        return self._small.split(parts)

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        return self._walk(self._small, self._large, range_, position, limit)

    def keys(self, range_: Json, position: Json, limit: int) -> tuple[list[Value], Json]:
        side, at = _position(position)
        if side == "small":
            ids, next_ = self._small.keys(range_, at, limit)
        else:
            found, next_ = self._large.keys(range_, at, limit)
            ids = self._beside(found, lambda id: id)
        return ids, self._next(side, next_)

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        return self._read(self._small, self._large, ids)

    def read_entries(self, id: Value, paths: Sequence[str]) -> Entries | None:
        found = self._small.read_entries(id, paths)
        if found is None and self._headed([id]):
            found = self._large.read_entries(id, paths)
            if found is None:  # One that became small in between has its item by now.
                found = self._small.read_entries(id, paths)
        return found

    def sample(self, size: int) -> Page:
        large = Page([], None)
        if self._there():
            large = self._large.sample(max(1, size // 8))
            large.blocks = self._beside(large.blocks, lambda block: block.id)
            del large.blocks[size:]
        small = self._small.sample(size)
        del small.blocks[max(0, size - len(large.blocks)) :]
        return one_page((small, large), size)

    def observer(self) -> Observer:
        return _SplitObserver(self)

    def _walk(
        self, small: Observer, large: Observer, range_: Json, position: Json, limit: int
    ) -> Page:
        """A page of a segment of the items, and after these of the same segment beside."""
        side, at = _position(position)
        if side == "small":
            page = small.page(range_, at, limit)
        else:
            page = large.page(range_, at, limit)
            page.blocks = self._beside(page.blocks, lambda block: block.id)
        page.next = self._next(side, page.next)
        return page

    def _next(self, side: str, next_: Json) -> Json:
        if next_ is not None:
            return {"side": side, "at": next_}
        return {"side": "large", "at": None} if side == "small" and self._there() else None

    def _read(self, small: Observer, large: Observer, ids: Sequence[Value]) -> list[Block | None]:
        found = small.read(ids)
        missing = [i for i, block in enumerate(found) if block is None]
        if not missing:
            return found
        headed = {encode(id) for id in self._headed([ids[i] for i in missing])}
        beside = [i for i in missing if encode(ids[i]) in headed]
        for i, block in zip(beside, large.read([ids[i] for i in beside]), strict=True):
            found[i] = block
        # One that became small in between has its item by now.
        missing = [i for i in missing if found[i] is None]
        for i, block in zip(missing, small.read([ids[i] for i in missing]), strict=True):
            found[i] = block
        return found

    def _headed(self, ids: Sequence[Value]) -> list[Value]:
        """Those of some keys that something lies under beside; of a single one that is not asked
        before it is looked at."""
        if not ids or not self._there():
            return []
        return self._large.headed(ids) if len(ids) > 1 else list(ids)

    def _beside(self, found: Sequence[_T], id_of: Callable[[_T], Value]) -> list[_T]:
        """What was found beside without what an item stands for."""
        items = self._items([id_of(each) for each in found])
        return [each for each in found if encode(id_of(each)) not in items]

    def _items(self, ids: Sequence[Value]) -> set[bytes]:
        """Those of some keys that have an item, in canonical form."""
        return {encode(id) for id in self._small.held(ids)} if ids else set()

    # ------------------------------------------------------------ writing

    def write(self, blocks: Sequence[Block]) -> int:
        distinct = {encode(self.same_key(block.id)): block for block in blocks}.values()
        small: list[tuple[Block, Write]] = []
        large: list[Block] = []
        for block in distinct:
            written = self._small.written(block)
            if written is None:
                large.append(block)
            else:
                small.append((block, written))
        sent = 0
        if large:
            sent += self._large.write(large)
            self._small.delete([Address(block.id) for block in large])
        lasting = [each for each in small if each[0].expires is None]
        if lasting:
            sent += self._small.send([written for _, written in lasting])
            self._clear([block.id for block, _ in lasting])
        if ending := [each for each in small if each[0].expires is not None]:
            self._uncover([block for block, _ in ending])
            sent += self._small.send([written for _, written in ending])
        return sent

    def _uncover(self, blocks: Sequence[Block]) -> None:
        """Remove what lies beside items that are to end.

        The server may sweep an item as soon as it is there, and what it uncovers is an old block.
        So the item comes without its deadline first where there is such a one.
        """
        ids = [block.id for block in blocks]
        headed = {encode(id) for id in (self._large.headed(ids) if self._there() else ())}
        over = [block for block in blocks if encode(block.id) in headed]
        if over:
            lasting = (self._small.written(replace(block, expires=None)) for block in over)
            self._small.send([written for written in lasting if written is not None])
            self._clear([block.id for block in over])

    def _clear(self, ids: Sequence[Value]) -> None:
        self._large.delete([Address(id) for id in self._headed(ids)])

    def patch(self, patches: Sequence[Patch]) -> None:
        for patch in patches:
            try:
                self._small.patch([patch])
            except Absent:
                if not self._there():
                    raise
                self._large.patch([patch])
            except DoesNotFit:
                # It may have outgrown its item; what fits nowhere is told by the write.
                (old,) = self._small.read([patch.id])
                if old is None:
                    raise
                self.write([made_of(old, patch)])

    def delete(self, addresses: Sequence[Address]) -> None:
        self._clear([address.id for address in addresses])
        self._small.delete(addresses)

    exchanging_alone = True

    def exchange(self, id: Value, held: Block | None, change: Change) -> bool:
        """Change a block that still is ``held``, wherever it lies and comes to lie."""
        return self._transactor.exchange(id, held, change)

    def replace(self, id: Value, change: Block | None) -> None:
        """Put a whole block, or remove it, in one transaction, whatever lies there."""
        self._transactor.replace(id, change)

    # ------------------------------------------------------------ following

    def journal(self, name: str) -> Journal:
        """The streams of both tables, for a run of this name."""
        from migrator.stores.dynamodb.split_feed import SplitJournal

        small, large = (side.journal(name) for side in (self._small, self._large))
        return SplitJournal(small, large, {"small": self._large.headed, "large": self._small.held})

    def note(self, name: str) -> Note:
        """The note of this name, in the same region of the same account."""
        return self._small.note(name)

    # ------------------------------------------------------------ what fits

    def size(self, block: Block) -> int:
        return (self._large if self._small.is_large(block) else self._small).size(block)

    def measure(self, block: Block) -> tuple[int, Units]:
        if not self._small.is_large(block):
            size, units = self._small.measure(block)
            return size, _sum(units, Units(look=1))
        self._measured += 1
        size, units = self._large.measure(block)
        return size, _sum(units, Units(write=1))

    def units(self, new: Block | None, old: Block | None) -> Units:
        total = Units(look=1)
        sides: tuple[tuple[Metered, bool], ...] = ((self._small, False), (self._large, True))
        for side, large in sides:
            mine = [b if b and self._small.is_large(b) is large else None for b in (new, old)]
            if any(mine):
                total = _sum(total, side.units(*mine))
        if new is not None and old is None and self._small.is_large(new):
            total = _sum(total, Units(write=1))  # its item, which is not there, is removed
        return total

    def scan_units(self) -> int:
        return self._small.scan_units() + (self._large.scan_units() if self._there() else 0)

    def consumed(self) -> int:
        return self._small.consumed()

    def rates(self) -> Rates:
        return self._small.rates()

    def needs_tag(self, value: Value) -> Held | None:
        return self._small.needs_tag(value)

    def same_key(self, id: Value) -> Value:
        return self._small.same_key(id)


class _SplitObserver:
    """Reads both tables by the observers of each."""

    def __init__(self, collection: SplitCollection) -> None:
        self._of = collection
        self._small, self._large = collection._small.observer(), collection._large.observer()

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        return self._of._walk(self._small, self._large, range_, position, limit)

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        return self._of._read(self._small, self._large, ids)


def _position(position: Json) -> tuple[str, Json]:
    if position is None:
        return "small", None
    match position:
        case {"side": "small" | "large" as side, "at": at}:
            return side, at
    raise Refused(f"{position!r} is no position in a DynamoDB table")


def _sum(one: Units, other: Units) -> Units:
    return Units(one.write + other.write, one.look + other.look, one.read + other.read)
