"""Capacity units of blocks that lie in several items, as ``switching.py`` writes them."""

from __future__ import annotations

from collections.abc import Mapping

from migrator.model.block import Block
from migrator.ports import Units
from migrator.stores.dynamodb.capacity import Meter, read_units
from migrator.stores.dynamodb.codec import Item
from migrator.stores.dynamodb.gathered import NEW, GatheredShape, Head
from migrator.stores.dynamodb.options import SIDE
from migrator.stores.dynamodb.places import Place
from migrator.stores.dynamodb.side import Side
from migrator.stores.dynamodb.sizes import item_size

# As large as one that is drawn.
_STAMP = 2**48 - 1
Items = Mapping[str, Item]


class GatheredMeter:
    """Counts what it takes to make a block another one."""

    def __init__(self, meter: Meter, shape: GatheredShape, *, located: bool) -> None:
        self._meter = meter
        self._shape = shape
        self._located = located
        self._stamp_bytes = item_size(shape.stamped({}, _STAMP))

    def fresh(self, place: Place, items: Items, sizes: Mapping[str, int]) -> Units:
        """What the items of a block, of these sizes, take where none lies."""
        write, size = self._created(place, items, sizes), sum(sizes.values())
        # One request tells for many blocks that there is none.
        return Units(write, 1 + self._located, self._read(size))

    def units(self, new: Block | None, old: Block | None) -> Units:
        """As ``Metered.units``."""
        if old is None:
            return Units() if new is None else self._alone(new)
        at, before = self._shape.encode(old)
        # Read whole to see what differs; once more by who removes it.
        look = self._read(sum(_sizes(before).values()))
        if new is None:
            return Units(self._removed(at, before), look, 0)
        place, after = self._shape.encode(new)
        sizes = _sizes(after)
        read = self._read(sum(sizes.values()))
        if place != at:
            write = self._created(place, after, sizes) + self._removed(at, before)
            return Units(write, look + 1, read)
        return Units(self._changed(place, after, before), 2 * look, read)

    def _alone(self, block: Block) -> Units:
        place, items = self._shape.encode(block)
        return self.fresh(place, items, _sizes(items))

    def _noted(self, place: Place, items: Items) -> Items:
        """The items with what switching notes in them."""
        head_sk = self._head(place)
        held = {sk: self._shape.stamped(x, _STAMP) for sk, x in items.items() if sk != head_sk}
        return held | {head_sk: self._checked(items[head_sk])}

    def _checked(self, head: Item) -> Item:
        said = Head.of(Side.of(head))
        if said is None:
            return head
        said.check = _STAMP
        return self._shape.headed(head, said)

    def _head(self, place: Place) -> str:
        return place.prefix + self._shape.places.head

    def _read(self, size: int) -> int:
        """A query for all of them; a locator is asked before it, and for each key of a scan."""
        return read_units(size) + 2 * self._located

    def _bare(self, place: Place, head: Item) -> Item:
        """A head of which only that it is new is known."""
        options = self._shape.options
        marks = {name: head[name] for name in options.reserved & head.keys() if name != SIDE}
        at = self._shape.places.key(place, self._head(place))
        return self._shape.headed(marks | at, Head(state=NEW))

    def _created(self, place: Place, items: Items, sizes: Mapping[str, int]) -> int:
        head_sk, total = self._head(place), 0
        begun = self._bare(place, items[head_sk]) if len(items) > 1 else None
        if begun is not None:
            total += self._meter.fresh(begun, item_size(begun))
        for sk, item in items.items():
            if sk == head_sk:
                total += self._meter.put(self._checked(item), begun)
                continue
            size = sizes[sk] + self._stamp_bytes
            if SIDE in item:
                size = item_size(self._shape.stamped(item, _STAMP))
            total += self._meter.fresh(item, size)
        # The locator notes a block before it is written, and after.
        return total + 2 * self._located

    def _removed(self, place: Place, bare_items: Items) -> int:
        items, head_sk = self._noted(place, bare_items), self._head(place)
        head, total = items[head_sk], int(self._located)
        if len(items) > 1:
            bare = self._bare(place, head)
            total += self._meter.put(bare, head)
            head = bare
        total += sum(self._meter.put(None, x) for sk, x in items.items() if sk != head_sk)
        return total + self._meter.put(None, head)

    def _changed(self, place: Place, after: Items, before: Items) -> int:
        """One item is changed as it is; several wait under keys of their own at first."""
        new, old = self._noted(place, after), self._noted(place, before)
        put, head_sk = self._meter.put, self._head(place)
        changed = {sk for sk in new.keys() | old.keys() if new.get(sk) != old.get(sk)}
        heads = put(new[head_sk], old[head_sk])
        apart = changed - {head_sk}
        finals = sum(put(new.get(sk), old.get(sk)) for sk in apart)
        if not apart:
            return heads if changed else 0
        if len(changed) == 1:
            return finals + heads
        waiting = [new[sk] for sk in apart & new.keys()]
        return finals + 2 * heads + sum(put(x, None) + put(None, x) for x in waiting)


def _sizes(items: Items) -> dict[str, int]:
    return {sk: item_size(item) for sk, item in items.items()}
