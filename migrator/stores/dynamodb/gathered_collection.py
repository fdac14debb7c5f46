"""One class in a table that it may share with others, a block a collection of items."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from migrator.errors import Refused, Terminal, Transient
from migrator.exchange import Change
from migrator.model.block import Address, Block, Patch, has_ended
from migrator.model.move import At
from migrator.model.rules import Entries
from migrator.model.value import Value, show
from migrator.ports import Held, Json, Observer, Page, Rates, Statistics, Units
from migrator.retry import request as by_retry
from migrator.stores.dynamodb import facts, findings, keys, sizes
from migrator.stores.dynamodb.capacity import Meter
from migrator.stores.dynamodb.codec import Item, Unreadable
from migrator.stores.dynamodb.gathered import GatheredShape, Gatherer, Seen
from migrator.stores.dynamodb.gathered_capacity import GatheredMeter
from migrator.stores.dynamodb.item import read_deadline
from migrator.stores.dynamodb.live import GatheredKeys, Keys, Live
from migrator.stores.dynamodb.locator import Locator, find_all
from migrator.stores.dynamodb.options import SIDE, Options
from migrator.stores.dynamodb.partitions import PartitionKeys
from migrator.stores.dynamodb.places import Place
from migrator.stores.dynamodb.ranges import after, sample, segments, unreadable
from migrator.stores.dynamodb.side import Side
from migrator.stores.dynamodb.switching import Switcher
from migrator.stores.dynamodb.table import Table, remove
from migrator.stores.dynamodb.transacting import Transactor
from migrator.stores.dynamodb.wire import Wire

Decode = Callable[[Seen], Block]
_LOOKS = 20
_READERS = 8
_SCAN = 1000


class Walker:
    """Reads places: one by one, or along the segments of a scan."""

    def __init__(self, table: Table, shape: GatheredShape, locator: Locator | None) -> None:
        self.table = table
        self.where = table.where
        self.shape = shape
        self.locator = locator
        self._sk = table.options.key_names[1]
        self.gatherer = Gatherer(shape.places, self._sk)
        self._per_block = 4.0

    # ------------------------------------------------------------ one place

    def look(self, place: Place, projected: Mapping[str, Any] | None = None) -> Seen | None:
        """What lies at a place, as one moment saw it.

        A query is no snapshot: where the stamps do not add up it is made again, until they do
        or two of them have seen the same items, which then lay there between the two. Of what
        has ended the server may have swept a part: then the rest is no block.
        """
        before: list[Item] | None = None
        asked = self.shape.places.condition(place)
        if projected is not None:
            asked["ProjectionExpression"] = projected["ProjectionExpression"]
            asked["ExpressionAttributeNames"] |= projected["ExpressionAttributeNames"]
        for _ in range(_LOOKS):
            items = [item for item, _ in self.table.query(**asked)]
            seen = self.gatherer.see(place, items)
            if seen is not None and not seen.sure and self.may_be_swept(seen):
                seen.there = False
                return seen
            if seen is None or seen.sure or items == before:
                return seen
            before = items
        raise Transient(f"others keep writing at {place.pk}", where=self.where)

    def may_be_swept(self, seen: Seen) -> bool:
        """Whether some item has reached its deadline."""
        name, now = self.shape.options.expires, time.time() * 1000
        ends = (read_deadline(item, name, Side.of(item)) for item in seen.items)
        return any(at is not None and at <= now for at in ends)

    def look_all(self, places: Sequence[Place]) -> Iterator[Seen | None]:
        """As ``look``, several at once, in their order."""
        if len(places) < 2:
            yield from map(self.look, places)
            return
        with ThreadPoolExecutor(min(_READERS, len(places))) as pool:
            runs = [pool.submit(copy_context().run, self.look, place) for place in places]
            for run in runs:
                yield run.result()

    # ------------------------------------------------------------ many

    def walk(
        self,
        range_: Json,
        position: Json,
        limit: int,
        projected: Mapping[str, Any] | None = None,
    ) -> tuple[list[Seen], Json, int]:
        """Up to ``limit`` places of a segment with what lies there: places, position, bytes.

        The items of a partition lie together in a scan, those of other classes between them. A
        block that the end of a page may have cut is read again by itself; the position names
        the last one, so that the rest of it is passed by.
        """
        start, done = _position(position)
        asked = max(2, int(limit * self._per_block) + 1)
        items, last, size = self.table.scan(range_, start, asked, **(projected or {}))
        groups, firsts = self._grouped(items, done)
        if groups:
            self._per_block = max(1.0, min(1000.0, len(items) / len(groups)))
        places = list(groups)
        if len(places) > limit:
            cut = firsts[limit]
            places = places[:limit]
            last, done, open_ = self.table.key(items[cut - 1]), places[-1], False
        else:
            done = places[-1] if places else done
            open_ = last is not None and bool(places) and self._may_go_on(places[-1], last)
        found = []
        for place in places:
            seen = self.gatherer.see(place, groups[place])
            if seen is None or not seen.sure or (open_ and place == places[-1]):
                seen = self.look(place, projected)
                if seen is not None and open_ and last is not None and place == places[-1]:
                    last = max(last, self.table.key(seen.items[-1]), key=self.gatherer.sk)
            if seen is not None and seen.there:
                found.append(seen)
        if self.locator is not None:
            found = self.locator.current(found)
        next_ = None if last is None else {"after": last, "done": done and list(done)}
        return found, next_, size

    def _grouped(
        self, items: Sequence[Item], done: Place | None
    ) -> tuple[dict[Place, list[Item]], list[int]]:
        """The items of each place but the done one, and where each place begins."""
        groups: dict[Place, list[Item]] = {}
        firsts = []
        for i, item in enumerate(items):
            found = self.shape.places.find(item)
            if found is None or found.place == done:
                continue
            if found.place not in groups:
                groups[found.place] = []
                firsts.append(i)
            groups[found.place].append(item)
        return groups, firsts

    def _may_go_on(self, place: Place, last: Item) -> bool:
        pk, sk = (str(last[name].get("S", "")) for name in self.table.options.key_names)
        return bool(pk == place.pk and sk.startswith(place.prefix))


def _position(position: Json) -> tuple[Item | None, Place | None]:
    if position is None:
        return None, None
    if not isinstance(position, dict) or position.keys() != {"after", "done"}:
        raise Refused(f"{position!r} is no position in a DynamoDB table")
    return after(position["after"]), Place(*position["done"]) if position["done"] else None


class GatheredCollection(Live):
    """The blocks of one class, each in items of its own."""

    def __init__(self, store: str, wire: Wire, cls: str, at: At, options: Options) -> None:
        self.at = at
        self.cls = cls
        self._where = f"{store}:{at.collection}"
        self._table = Table(wire, at.collection, options, self._where)
        self._shape = GatheredShape(options, cls, at.rules(cls), self._where)
        places = self._shape.places
        self._locator = Locator(wire, at, cls, self._where) if places.fields else None
        self._walker = Walker(self._table, self._shape, self._locator)
        self._switcher = Switcher(self._table, self._shape, self._walker.look, self._where)
        self.transactor = Transactor(self._table, self._shape, self._walker.look, self._where)
        self._meter = Meter(self._table)
        located = self._locator is not None
        self._units = GatheredMeter(self._meter, self._shape, located=located)
        self._partitions = PartitionKeys(places)
        # Whether nothing lay in the table when this handle first wrote there.
        self._was_empty: bool | None = None

    def _touched(self) -> Keys:
        return GatheredKeys(self._table, self._shape)

    # ------------------------------------------------------------ the collection itself

    def exists(self) -> bool:
        return self._table.describe() is not None

    def create(self) -> None:
        self._table.create()
        if self._locator is not None:
            self._locator.table.create()

    def drop(self) -> None:
        """Remove the blocks of this class, and the table where it holds no other."""
        if not self._shared():
            self._table.drop()
        else:
            self._clear()
        if self._locator is not None:
            self._locator.table.drop()
        self._was_empty = None

    def _shared(self) -> bool:
        """Whether items of other classes lie in the table, or could only be told by looking."""
        places, options = self._shape.places, self._table.options
        if (
            not places.pk.first_literal
            and options.class_attribute is None
            and not (places.block.tokens or options.entries)
        ):
            return False
        if self._table.describe() is None:
            return False
        position: Item | None = None
        while True:
            items, position, _ = self._table.scan(None, position, 1000, **self._key_request())
            if any(places.find(item) is None for item in items):
                return True
            if position is None:
                return False

    def _clear(self) -> None:
        position: Item | None = None
        while True:
            items, position, _ = self._table.scan(None, position, 1000, **self._key_request())
            own = [self._table.key(x) for x in items if self._shape.places.find(x) is not None]
            self._table.write_many([remove(self._table.key_of(at), at, "") for at in own])
            if position is None:
                return

    def _key_request(self) -> dict[str, Any]:
        """What of an item is needed to know its block, and whether it is in force."""
        options = self._table.options
        wanted = [*options.key_names, SIDE, options.class_attribute]
        names = {f"#x{i}": name for i, name in enumerate(wanted) if name is not None}
        return {"ProjectionExpression": ",".join(names), "ExpressionAttributeNames": names}

    def schema(self) -> Json:
        return findings.schema(self._table)

    def findings(self) -> Iterable[tuple[str, str, str]]:
        yield from findings.of(self._table)
        yield from findings.of_places(self._shape.places)
        yield from findings.of_others(self._table, self._shape.places)

    def count(self) -> int:
        total, position = 0, None
        while True:
            found, position = self.keys(None, position, 1000)
            total += len(found)
            if position is None:
                return total

    def statistics(self) -> Statistics:
        """Blocks as a first look tells how many items each has; others' items are counted in."""
        items = self._table.statistics()
        seen, next_, size = self._walker.walk(None, None, 500)
        if next_ is None:
            return Statistics(len(seen), size if seen else 0, exact=True)
        held = sum(len(each.items) for each in seen) or 1
        share = len(seen) / held
        return Statistics(max(len(seen), int(items.blocks * share)), items.bytes, exact=False)

    def settle(self) -> None:
        """DynamoDB has neither sequences nor statistics to mend."""

    # ------------------------------------------------------------ reading

    def split(self, parts: int) -> list[Json]:
        return segments(parts)

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        return read_page(self._walker, self._shape.decode, range_, position, limit)

    def keys(self, range_: Json, position: Json, limit: int) -> tuple[list[Value], Json]:
        found, next_, _ = self._walker.walk(range_, position, limit, self._key_request())
        return [self._shape.id_of(seen) for seen in found], next_

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        return read_blocks(self._walker, self._shape.decode, ids)

    def read_entries(self, id: Value, paths: Sequence[str]) -> Entries | None:
        place = place_of(self._walker, [id])[0]
        if place is None:
            return None
        sks = {place.prefix + self._shape.places.entry(path) for path in ("", *paths)}
        at = [self._shape.places.key(place, sk) for sk in sks]
        found = self._table.get_many(at)
        seen = self._walker.gatherer.see(place, found)
        if seen is None or not seen.tells_entries or self._walker.may_be_swept(seen):
            (block,) = self.read([id])
        else:
            block = self._decoded(id, seen)
        if block is None or has_ended(block.expires, time.time()):
            return None
        return {path: block.entries[path] for path in paths if path in block.entries}

    def _decoded(self, id: Value, seen: Seen) -> Block:
        try:
            return self._shape.decode(seen)
        except Unreadable as error:
            raise unreadable(id, error, self._where) from None

    def sample(self, size: int) -> Page:
        return sample(self, size)

    def observer(self) -> Observer:
        from migrator.stores.dynamodb.gathered_observer import GatheredObserver

        return GatheredObserver(self._walker)

    # ------------------------------------------------------------ writing

    def write(self, blocks: Sequence[Block]) -> int:
        encoded = [(*self._shape.encode(block), block.id) for block in blocks]
        text = self._shape.places.tagged
        batch = {text(id)[0]: (place, items, id) for place, items, id in encoded}
        moved = self._locator.begin(batch) if self._locator is not None else {}
        there = self._there([place for place, _, _ in batch.values()])
        new = [each for each in batch.values() if each[0] not in there]
        sent = self._switcher.create(new)
        for place, items, id in batch.values():
            if place in there:
                # Conditions make a block's requests one: what fails is looked at anew.
                sent += by_retry(self._switcher.replace, place, items, id, there.pop(place))
        if self._locator is not None:
            self._locator.finish(batch, moved, self._remove)
        return sent

    def _remove(self, place: Place, id: Value) -> None:
        by_retry(self._switcher.delete, place, id)

    def _there(self, places: Sequence[Place]) -> dict[Place, Seen | None]:
        """The places where something may lie already, with that where it was looked at.

        Where the table was empty at first, all that lies there now is of this adapter's making
        and has a head, so that one request tells it for a hundred blocks.
        """
        if self._was_empty is None:
            items, _, _ = self._table.scan(None, None, 1)
            self._was_empty = not items
        heads = {
            place: self._shape.places.key(place, place.prefix + self._shape.places.head)
            for place in places
        }
        request = self._key_request()
        if self._was_empty and len(places) > 1:
            held = self._table.get_many(heads.values(), **request)
            found = map(self._shape.places.find, held)
            return {each.place: None for each in found if each is not None}
        seen = zip(heads, self._walker.look_all(list(heads)), strict=True)
        return {place: each for place, each in seen if each is not None}

    def look(self, id: Value) -> tuple[Place, Seen | None]:
        """The place that a key alone gives, and what lies there."""
        place = self._shape.places.of_id(id)
        if place is None:
            raise self._shape.unfit(id, "the key alone does not say where it lies")
        return place, self._walker.look(place)

    def headed(self, ids: Sequence[Value]) -> list[Value]:
        """Those of some keys under which a head lies, be it that of a block on its way."""
        places = self._shape.places
        at = [places.of_id(id) for id in ids]
        heads = [places.key(place, place.prefix + places.head) for place in dict.fromkeys(at)]
        found = map(places.find, self._table.get_many(heads, **self._key_request()))
        there = {each.place for each in found if each is not None}
        return [id for id, place in zip(ids, at, strict=True) if place in there]

    def patch(self, patches: Sequence[Patch]) -> None:
        for patch in patches:
            for path, value in patch.set.items():
                self._shape.check(patch.id, path, value)
        for patch in patches:
            if not patch.set and not patch.unset:
                continue
            place = place_of(self._walker, [patch.id])[0]
            if self._shape.moves and place is not None:
                self._rewrite(patch)
                continue
            if place is None:
                raise Terminal(
                    f"{show(patch.id)}: there is no such block to change",
                    where=self._where,
                    hint="put the whole block instead",
                )
            self._switcher.patch(patch, place)

    def _rewrite(self, patch: Patch) -> None:
        """Put the changed block whole, as its keys or its index attributes may change with it."""
        (old,) = self.read([patch.id])
        if old is None:
            raise Terminal(
                f"{show(patch.id)}: there is no such block to change",
                where=self._where,
                hint="put the whole block instead",
            )
        entries = {p: x for p, x in old.entries.items() if p not in patch.unset} | patch.set
        self.write([Block(old.id, entries, old.expires)])

    def delete(self, addresses: Sequence[Address]) -> None:
        for address in addresses:
            if isinstance(address.place, list):
                place: Place | None = Place(*map(str, address.place))
            else:
                place = place_of(self._walker, [address.id])[0]
            if place is not None:
                self._remove(place, address.id)
            if self._locator is not None:
                self._locator.forget(address.id, place, self._remove)

    @property
    def exchanging_alone(self) -> bool:
        """Plain writes take several steps, each of which may undo what was exchanged meanwhile."""
        return self._locator is None

    def exchange(self, id: Value, held: Block | None, change: Change) -> bool:
        """Change a block that still is ``held``, in one transaction."""
        if self._locator is not None:
            raise Refused(
                "a block whose place depends on its values can't be changed on condition yet",
                where=self._where,
                hint="put or delete whole aggregates without expected",
            )
        return self.transactor.exchange(id, held, change)

    def replace(self, id: Value, change: Block | None) -> None:
        """Put a whole block, or remove it, in one transaction, whatever lies there."""
        self.transactor.replace(id, change)

    # ------------------------------------------------------------ what fits

    def size(self, block: Block) -> int:
        return sum(self._counted(block)[2].values())

    def _counted(self, block: Block) -> tuple[Place, Mapping[str, Item], Mapping[str, int]]:
        """The items of a block and their sizes, by sort key."""
        place, items = self._shape.encode(block)
        by_key = {sk: sizes.item_size(item) for sk, item in items.items()}
        # A plan asks this of every block: so it learns which partitions would be too large.
        self._partitions.add(place, sum(by_key.values()))
        return place, items, by_key

    def target_findings(self, blocks: int, size: int) -> Iterable[tuple[str, str, str]]:
        return self._partitions.findings(blocks, size, self._meter.indexes)

    def crowded(self, blocks: int) -> bool:
        return self._partitions.crowded(blocks)

    def measure(self, block: Block) -> tuple[int, Units]:
        place, items, by_key = self._counted(block)
        return sum(by_key.values()), self._units.fresh(place, items, by_key)

    def units(self, new: Block | None, old: Block | None) -> Units:
        return self._units.units(new, old)

    def scan_units(self) -> int:
        located = 0 if self._locator is None else self.statistics().blocks
        return self._meter.scan() + located

    def consumed(self) -> int:
        return round(self._table.wire.reads.spent)

    def rates(self) -> Rates:
        return self._meter.rates()

    def needs_tag(self, value: Value) -> Held | None:
        return facts.needs_tag(value)

    def same_key(self, id: Value) -> Value:
        return keys.same(id, self._table.options.told_by)


def place_of(walker: Walker, ids: Sequence[Value]) -> list[Place | None]:
    """Where the blocks of some keys lie; None where nothing says it."""
    if walker.locator is None:
        return [walker.shape.places.of_id(id) for id in ids]
    if walker.locator.there:
        return walker.locator.places(ids)
    texts = [keys.text(id)[0] for id in ids]
    found = find_all(set(texts), lambda at: walker.walk(None, at, _SCAN))
    return [found.get(text) for text in texts]


def read_page(walker: Walker, decode: Decode, range_: Json, position: Json, limit: int) -> Page:
    """A page of a segment; what can't be read is reported, the others are fine."""
    found, next_, size = walker.walk(range_, position, limit)
    page = Page([], next_, size)
    for seen in found:
        try:
            page.blocks.append(decode(seen))
        except Unreadable as error:
            page.damaged.append((walker.shape.id_of(seen), str(error)))
    return page


def read_blocks(walker: Walker, decode: Decode, ids: Sequence[Value]) -> list[Block | None]:
    """The blocks of some keys, in the order of the keys."""
    wanted = place_of(walker, ids)
    distinct = [place for place in dict.fromkeys(wanted) if place is not None]
    seen = dict(zip(distinct, walker.look_all(distinct), strict=True))
    blocks: list[Block | None] = []
    for id, place in zip(ids, wanted, strict=True):
        found = seen[place] if place is not None else None
        try:
            blocks.append(decode(found) if found is not None and found.there else None)
        except Unreadable as error:
            raise unreadable(id, error, walker.where) from None
    return blocks
