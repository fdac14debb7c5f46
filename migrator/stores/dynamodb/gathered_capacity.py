"""Capacity units of blocks that lie in several items, as ``switching.py`` writes them."""

from __future__ import annotations

from collections.abc import Mapping

from migrator.model.block import Block
from migrator.ports import Units
from migrator.stores.dynamodb.capacity import Meter, read_units
from migrator.stores.dynamodb.codec import Item
from migrator.stores.dynamodb.gathered import NEW, GatheredShape, Head
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

    def units(self, new: Block | None, old: Block | None) -> Units:
        """As ``Metered.units``."""
        after = None if new is None else self._items(new)
        before = None if old is None else self._items(old)
        read = 0 if after is None else self._read(after[1])
        if before is None:
            # One request tells for many blocks that there is none.
            return Units(self._created(after), 1 + self._located, read)
        # Read whole to see what differs; once more by who removes it.
        look = self._read(before[1])
        if after is None:
            return Units(self._removed(before), look, read)
        if after[0] != before[0]:
            return Units(self._created(after) + self._removed(before), look + 1, read)
        return Units(self._changed(after, before), 2 * look, read)

    def _items(self, block: Block) -> tuple[Place, Items]:
        """A block's items with what switching notes in them."""
        place, items = self._shape.encode(block)
        head_sk = self._head(place)
        held = {sk: self._shape.stamped(x, _STAMP) for sk, x in items.items() if sk != head_sk}
        head, said = items[head_sk], Head.of(Side.of(items[head_sk]))
        if said is not None:
            said.check = _STAMP
            head = self._shape.headed(head, said)
        return place, held | {head_sk: head}

    def _head(self, place: Place) -> str:
        return place.prefix + self._shape.places.head

    def _read(self, items: Items) -> int:
        """A query for all of them; a locator is asked before it, and for each key of a scan."""
        return read_units(sum(map(item_size, items.values()))) + 2 * self._located

    def _bare(self, place: Place, head: Item) -> Item:
        """A head of which only that it is new is known."""
        options = self._shape.options
        marks = {name: head[name] for name in options.reserved & head.keys() if name != "_migrator"}
        at = self._shape.places.key(place, self._head(place))
        return self._shape.headed(marks | at, Head(state=NEW))

    def _created(self, made: tuple[Place, Items] | None) -> int:
        if made is None:
            return 0
        place, items = made
        head_sk = self._head(place)
        begun = self._bare(place, items[head_sk]) if len(items) > 1 else None
        total = 0 if begun is None else self._meter.put(begun, None)
        total += sum(self._meter.put(x, None) for sk, x in items.items() if sk != head_sk)
        # The locator notes a block before it is written, and after.
        return total + self._meter.put(items[head_sk], begun) + 2 * self._located

    def _removed(self, made: tuple[Place, Items]) -> int:
        place, items = made
        head_sk = self._head(place)
        head, total = items[head_sk], int(self._located)
        if len(items) > 1:
            bare = self._bare(place, head)
            total += self._meter.put(bare, head)
            head = bare
        total += sum(self._meter.put(None, x) for sk, x in items.items() if sk != head_sk)
        return total + self._meter.put(None, head)

    def _changed(self, after: tuple[Place, Items], before: tuple[Place, Items]) -> int:
        """One item is changed as it is; several wait under keys of their own at first."""
        (place, new), (_, old) = after, before
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
