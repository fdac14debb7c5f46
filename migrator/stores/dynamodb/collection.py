"""One class in a table of its own, a block an item."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from migrator.errors import DamagedBlock
from migrator.exchange import Change, done_unread
from migrator.model.block import Address, Block, Patch, has_ended
from migrator.model.move import At, Layout
from migrator.model.path import escape, parse_path
from migrator.model.rules import Entries
from migrator.model.value import Value
from migrator.ports import Held, Json, Observer, Page, Rates, Statistics, Units
from migrator.stores.dynamodb import facts, findings, keys, sizes
from migrator.stores.dynamodb.amending import Amender
from migrator.stores.dynamodb.capacity import Meter, read_units
from migrator.stores.dynamodb.codec import Item, Unreadable
from migrator.stores.dynamodb.expressions import unchanged
from migrator.stores.dynamodb.item import ItemShape
from migrator.stores.dynamodb.live import Keys, Live, item_keys
from migrator.stores.dynamodb.options import GATHERED, REST, SIDE, Options
from migrator.stores.dynamodb.patching import Patcher
from migrator.stores.dynamodb.ranges import after, sample, segments, unreadable
from migrator.stores.dynamodb.table import Table, Write, put, remove
from migrator.stores.dynamodb.wire import Wire

Decode = Callable[[Item], Block]
_SCAN = 1000


class ItemCollection(Live):
    """The blocks of one class, each an item of one table."""

    def __init__(self, store: str, wire: Wire, cls: str, at: At, options: Options) -> None:
        self.at = at
        self.cls = cls
        self._where = f"{store}:{at.collection}"
        self._table = Table(wire, at.collection, options, self._where)
        self._rules = at.rules(cls)
        self._shape = ItemShape(options, self._rules, self._where)
        self._meter = Meter(self._table)

    def _touched(self) -> Keys:
        return item_keys(self._table.options.hash.name)

    # ------------------------------------------------------------ the collection itself

    def exists(self) -> bool:
        return self._table.describe() is not None

    def create(self) -> None:
        self._table.create()

    def drop(self) -> None:
        self._table.drop()

    def schema(self) -> Json:
        return findings.schema(self._table)

    def findings(self) -> Iterable[tuple[str, str, str]]:
        return findings.of(self._table)

    def count(self) -> int:
        return self._table.count()

    def statistics(self) -> Statistics:
        return self._table.statistics()

    def settle(self) -> None:
        """DynamoDB has neither sequences nor statistics to mend."""

    # ------------------------------------------------------------ reading

    def split(self, parts: int) -> list[Json]:
        return segments(parts)

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        return read_page(self._table, self._shape.decode, range_, position, limit)

    def keys(self, range_: Json, position: Json, limit: int) -> tuple[list[Value], Json]:
        names = {"#k": self._table.options.hash.name, "#s": SIDE}
        items, next_, _ = self._table.scan(
            range_,
            after(position),
            limit,
            ProjectionExpression="#k,#s.id",
            ExpressionAttributeNames=names,
        )
        return [self._shape.id_of(item) for item in items], next_

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        return read_blocks(self._table, self._shape.decode, ids)

    def read_entries(self, id: Value, paths: Sequence[str]) -> Entries | None:
        at = self._at(id)
        item = self._table.get(at) if "" in paths else self._projected(at, paths)
        if item is None:
            return None
        block = self._decoded(id, item)
        if has_ended(block.expires, time.time()):
            return None
        return {path: block.entries[path] for path in paths if path in block.entries}

    def _projected(self, at: Item, paths: Sequence[str]) -> Item | None:
        """The attributes of some entries; the whole item where they lie otherwise."""
        names = {self._table.options.hash.name, SIDE}
        if self._table.options.expires is not None:
            names.add(self._table.options.expires)
        above: set[str] = set()
        for path in paths:
            names.add(self._shape.attribute(path)[0])
            if (first := escape(str(parse_path(path)[0]))) not in paths:
                above.add(self._shape.attribute(first)[0])
        if len(names | above) > 100:
            return self._table.get(at)
        given = {f"#{i}": name for i, name in enumerate(sorted(names | above))}
        item = self._table.get(
            at, ProjectionExpression=",".join(given), ExpressionAttributeNames=given
        )
        if item is not None and not above.isdisjoint(item.keys() - names):
            return self._table.get(at)
        if item is not None and not self._shape.key_is_entry:
            # What is not asked for is not there, which must not look like an item of others.
            item.setdefault(REST, {"M": {}})
        return item

    def _decoded(self, id: Value, item: Item) -> Block:
        try:
            return self._shape.decode(item)
        except Unreadable as error:
            raise unreadable(id, error, self._where) from None

    def sample(self, size: int) -> Page:
        return sample(self, size)

    def observer(self) -> Observer:
        from migrator.stores.dynamodb.observer import ItemObserver

        return ItemObserver(self._table, self._rules)

    # ------------------------------------------------------------ writing

    def write(self, blocks: Sequence[Block]) -> int:
        writes = []
        for block in blocks:
            item, raw = self._shape.encode(block)
            writes.append(put(self._table.key_of(item), raw, str(block.id)))
        return self.send(writes)

    def written(self, block: Block) -> Write | None:
        """The request that puts a block; None where it is too large for an item."""
        encoded = self._shape.encoded(block)
        if encoded is None:
            return None
        return put(self._table.key_of(encoded[0]), encoded[1], str(block.id))

    def send(self, writes: Sequence[Write]) -> int:
        """Carry out requests; the bytes sent."""
        self._table.write_many(writes)
        return sum(write.bytes for write in writes)

    def patch(self, patches: Sequence[Patch]) -> None:
        Patcher(self._table, self._shape, self._where).patch(patches)

    def amend(
        self, id: Value, set: Mapping[str, Value], append: Mapping[str, Value]
    ) -> Block | None:
        item = Amender(self._table, self._shape, self._rules).amend(id, set, append)
        try:
            return None if item is None else self._decoded(id, item)
        except DamagedBlock as error:
            raise done_unread(error) from None

    def exchange(self, id: Value, held: Block | None, change: Change) -> bool:
        return Patcher(self._table, self._shape, self._where).exchange(id, held, change)

    def turned(self, id: Value, item: Item, block: Block) -> bool:
        """Make an item that of a block, if it still is what was read. Raises TooMuch."""
        return Patcher(self._table, self._shape, self._where).turn(id, item, block)

    # ------------------------------------------------------------ as part of a transaction

    def lying(self, id: Value) -> Item | None:
        """The item of a key as it is now."""
        return self._table.get(self._at(id))

    def block(self, id: Value, item: Item) -> Block:
        """The block of an item. Raises DamagedBlock."""
        return self._decoded(id, item)

    def removal(self, id: Value, item: Item) -> dict[str, Any]:
        """The action that removes an item which still is what was read. Raises TooMuch."""
        at = {"TableName": self._table.name, "Key": self._table.key(item)}
        return {"Delete": at | self._unchanged(id, item)}

    def creation(self, block: Block) -> dict[str, Any]:
        """The action that puts the item of a block where there is none. Raises DoesNotFit."""
        _, raw = self._shape.encode(block)
        made = {"TableName": self._table.name, "Item": msgspec.Raw(raw)}
        return {"Put": made | self._unchanged(block.id, None)}

    def replacement(self, item: Item, block: Block) -> dict[str, Any]:
        """The action that puts a block in the place of an item which still is what was read. Raises
        TooMuch, DoesNotFit."""
        new, raw = self._shape.encode(block)
        made = {"TableName": self._table.name, "Item": msgspec.Raw(raw)}
        return {"Put": made | self._unchanged(block.id, item, new)}

    def absence(self, id: Value) -> dict[str, Any]:
        """The action that holds where a key has no item."""
        at = {"TableName": self._table.name, "Key": self._at(id)}
        return {"ConditionCheck": at | self._unchanged(id, None)}

    def _unchanged(
        self, id: Value, item: Item | None, new: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        return unchanged(item, new or {}, self._table.options.hash.name, id, self._where)

    def _at(self, id: Value) -> Item:
        return {self._table.options.hash.name: self._shape.key(id)[0]}

    def delete(self, addresses: Sequence[Address]) -> None:
        writes = []
        for address in addresses:
            at = self._at(address.id)
            writes.append(remove(self._table.key_of(at), at, str(address.id)))
        self._table.write_many(writes)

    # ------------------------------------------------------------ what fits

    def size(self, block: Block) -> int:
        return sizes.item_size(self._shape.item(block))

    def measure(self, block: Block) -> tuple[int, Units]:
        item = self._shape.item(block)
        size = sizes.item_size(item)
        return size, Units(self._meter.fresh(item, size), 0, read_units(size))

    def units(self, new: Block | None, old: Block | None) -> Units:
        after, before = (None if b is None else self._shape.item(b) for b in (new, old))
        read = 0 if after is None else read_units(sizes.item_size(after))
        return Units(self._meter.put(after, before), 0, read)

    def scan_units(self) -> int:
        return self._meter.scan()

    def consumed(self) -> int:
        return round(self._table.wire.reads.spent)

    def rates(self) -> Rates:
        return self._meter.rates()

    def roomier(self) -> Layout:
        given = dict(self.at.layout.options) if self.at.layout is not None else {}
        given.pop("key", None)
        name = self.cls.upper().replace("{", "{{").replace("}", "}}")
        return Layout(GATHERED, {"pk": f"{name}#{{id}}", **given})

    def is_large(self, block: Block) -> bool:
        """Whether a block is too large for an item. Raises DoesNotFit for what has none at all."""
        return sizes.item_size(self._shape.item(block)) > self._table.options.most

    def held(self, ids: Sequence[Value]) -> list[Value]:
        """Those of some keys that have an item."""
        at = [self._at(id) for id in ids]
        found = self._table.get_many(
            {self._table.key_of(key): key for key in at}.values(),
            ProjectionExpression="#k",
            ExpressionAttributeNames={"#k": self._table.options.hash.name},
        )
        there = set(map(self._table.key_of, found))
        return [id for id, key in zip(ids, at, strict=True) if self._table.key_of(key) in there]

    def needs_tag(self, value: Value) -> Held | None:
        return facts.needs_tag(value)

    def same_key(self, id: Value) -> Value:
        return keys.same(id, self._table.options.hash.type)


def read_page(table: Table, decode: Decode, range_: Json, position: Json, limit: int) -> Page:
    """A page of a segment; what can't be read is reported, the others are fine."""
    items, next_, size = table.scan(range_, after(position), limit)
    page = Page([], next_, size)
    for item in items:
        try:
            page.blocks.append(decode(item))
        except Unreadable as error:
            page.damaged.append((_key(table, item), str(error)))
    return page


def _key(table: Table, item: Item) -> Value:
    return keys.read(item[table.options.hash.name], None)


def read_blocks(table: Table, decode: Decode, ids: Sequence[Value]) -> list[Block | None]:
    """The blocks of some keys, in the order of the keys."""
    name, type_ = table.options.hash.name, table.options.hash.type
    wanted = []
    for id in ids:
        at = {name: keys.hold(id, type_)[0]}
        wanted.append((table.key_of(at), at))
    found = {table.key_of(item): item for item in table.get_many(dict(wanted).values())}
    blocks: list[Block | None] = []
    for id, (key, _) in zip(ids, wanted, strict=True):
        item = found.get(key)
        try:
            blocks.append(None if item is None else decode(item))
        except Unreadable as error:
            raise unreadable(id, error, table.where) from None
    return blocks
