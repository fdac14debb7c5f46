"""Layout ``item-collection``: a block is a partition (or a part of one), an entry an item.

The fields of an entry that is a record are attributes; any other value lies in ``_``. The item
of the remainder is the *head* of the block; it is there even where the block has no remainder.
A block of one item is whole by itself. The head of a larger one says in the side attribute how
to tell that all of it was read:

    _migrator: {
      tags, names, id, expires, sum:  as in ``item.py``, of this item
      stamp: a number drawn when this entry was written (not on the head)
      head: {
        check: the stamps of all entries, XORed
        only:  true where the block has no remainder
        state: "new" (not whole yet, or going: as if it were not there), or the stage of a
               change that is being carried out, see ``switching.py``
        gone:  the sort keys that the change removes
      }
    }

An entry without a stamp was written by somebody else, and belongs to the block; one with a
stamp and without a head is what was left of a block, and does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from migrator.errors import DoesNotFit
from migrator.model import percent
from migrator.model.block import Block
from migrator.model.rules import Entries, Representation
from migrator.model.value import Value, show
from migrator.stores.dynamodb import codec, sizes
from migrator.stores.dynamodb.codec import Av, Item, Unreadable
from migrator.stores.dynamodb.item import deadline, read_deadline
from migrator.stores.dynamodb.options import REST, SIDE, Options
from migrator.stores.dynamodb.places import Place, Places
from migrator.stores.dynamodb.side import Side
from migrator.stores.dynamodb.template import Computed

encode_json = msgspec.json.Encoder().encode
NEW = "new"
# What switching adds to an item: stamp, check, stage.
_ROOM = 400


@dataclass
class Head:
    """What a head says of its block."""

    check: int = 0
    only: bool = False
    state: str | None = None
    gone: frozenset[str] = frozenset()

    def wire(self) -> Av:
        held: dict[str, Av] = {"check": {"N": str(self.check)}}
        if self.only:
            held["only"] = {"BOOL": True}
        if self.state is not None:
            held["state"] = {"S": self.state}
        if self.gone:
            held["gone"] = {"SS": sorted(self.gone)}
        return {"M": held}

    @classmethod
    def of(cls, side: Side) -> Head | None:
        held = side.more.get("head", {}).get("M")
        if held is None:
            return None
        return cls(
            int(held.get("check", {}).get("N", 0)),
            held.get("only") == {"BOOL": True},
            held.get("state", {}).get("S"),
            frozenset(held.get("gone", {}).get("SS", ())),
        )


@dataclass
class Seen:
    """The items of one place, as read: those in force, and those that wait."""

    place: Place
    id: str
    entries: dict[str, Item] = field(default_factory=dict)
    staged: list[str] = field(default_factory=list)
    head: Head | None = None
    sure: bool = True
    there: bool = False
    items: list[Item] = field(default_factory=list)

    @property
    def tells_entries(self) -> bool:
        """Whether what was asked for of it is all in force: not of a block that may be about to
        change, or whose head came too late to be seen beside an entry."""
        if self.head is not None:
            return self.head.state is None
        return self.there and len(self.entries) == len(self.items)


def stamp_of(item: Mapping[str, Any]) -> int | None:
    """The stamp of an entry; None on items of others and on heads."""
    held = item.get(SIDE, {}).get("M", {})
    return int(held["stamp"]["N"]) if "stamp" in held and Side.of(item).ours else None


class Gatherer:
    """Tells the items of a place apart, and which of them are in force."""

    def __init__(self, places: Places, sk_name: str) -> None:
        self._places = places
        self._sk_name = sk_name

    def sk(self, item: Item) -> str:
        return str(item[self._sk_name]["S"])

    def see(self, place: Place, items: Iterable[Item]) -> Seen | None:
        """What lies at a place; None for nothing of this class."""
        seen: Seen | None = None
        finals: dict[str, Item] = {}
        staged: dict[str, dict[str, Item]] = {}
        for item in items:
            found = self._places.find(item)
            if found is None or found.place != place:
                continue
            seen = seen or Seen(place, found.id)
            seen.items.append(item)
            if found.stage is None:
                finals[self.sk(item)] = item
                continue
            seen.staged.append(self.sk(item))
            final = place.prefix + self._places.entry(found.path)
            staged.setdefault(found.stage, {})[final] = item
        if seen is not None:
            self._settle(seen, finals, staged)
        return seen

    def _settle(
        self, seen: Seen, finals: dict[str, Item], staged: dict[str, dict[str, Item]]
    ) -> None:
        head_sk = seen.place.prefix + self._places.head
        held = finals.get(head_sk)
        seen.head = Head.of(Side.of(held)) if held is not None else None
        stamps = {sk: stamp_of(item) for sk, item in finals.items() if sk != head_sk}
        if seen.head is None:
            seen.entries = {sk: x for sk, x in finals.items() if stamps.get(sk) is None}
            seen.there = bool(seen.entries)
            return
        overlay = staged.get(seen.head.state or "", {})
        entries = {sk: x for sk, x in finals.items() if sk not in seen.head.gone} | overlay
        seen.entries = entries
        seen.there = seen.head.state != NEW
        check = 0
        for sk, item in entries.items():
            if sk != head_sk:
                check ^= stamp_of(item) or 0
        seen.sure = not seen.there or check == seen.head.check


class GatheredShape:
    """Blocks to items and back."""

    def __init__(
        self, options: Options, cls: str, representation: Representation, where: str
    ) -> None:
        self.options = options
        self._where = where
        self.cls = cls
        self.places = Places(options, cls, representation, where)
        self.computed = Computed(options, where)
        self._reserved = options.reserved | {REST}
        self.moves = self.computed.any or bool(self.places.fields)
        """Whether a change of an entry may change other items, or where the block lies."""

    # ------------------------------------------------------------ writing

    def encode(self, block: Block) -> tuple[Place, dict[str, Item]]:
        """The place of a block, and its items by sort key, head included. Raises DoesNotFit."""
        if not block.entries:
            raise self.unfit(block.id, "a block has no entry")
        place = self.places.of(block)
        items = {}
        for path, value in block.entries.items():
            sk = self.places.sk(block.id, place, path)
            if sk in items:
                raise self.unfit(block.id, "two entries give one sort key", path)
            items[sk] = self.entry(block.id, path, value, self.marks(place, sk, block))
        head = self.places.sk(block.id, place, "")
        only = head not in items
        if only:
            items[head] = self.marks(place, head, block)
        items[head] |= self.computed.of(block)
        _, tag = self.places.tagged(block.id)
        side = Side.of(items[head])
        side.id = tag
        if len(items) > 1:
            side.more["head"] = Head(only=only).wire()
        self.seal(items[head], side)
        for sk, item in items.items():
            self.computed.check(block.id, item)
            self._check_size(block.id, sk, item)
        return place, items

    def marks(self, place: Place, sk: str, block: Block) -> Item:
        """The attributes that every item of a block has."""
        item = self.places.key(place, sk)
        if self.options.class_attribute is not None:
            item[self.options.class_attribute] = {"S": self.cls}
        if block.expires is not None:
            if self.options.expires is None:
                raise self.unfit(
                    block.id,
                    "the block has an expiry and the layout no attribute for it",
                    hint='declare one: item_collection(..., expires="expireAt")',
                )
            side = Side()
            item[self.options.expires] = deadline(block.expires, side)
            self.seal(item, side)
        return item

    def entry(self, id: Value, path: str, value: Value, item: Item) -> Item:
        """An item that holds an entry beside what it has already. Raises DoesNotFit."""
        side = Side.of(item)
        fields = value if type(value) is dict else {REST: value}
        for name, field_ in fields.items():
            attribute = name if type(value) is not dict else self._attribute(name)
            tags: dict[str, str] = {}
            try:
                av = codec.hold(field_, tags)
                deep = sizes.nests_too_deep(av)
            except RecursionError:
                deep = True
            except TypeError as error:
                raise self.unfit(id, str(error), path) from None
            if deep:
                raise self.unfit(id, f"it nests deeper than {sizes.NESTING} levels", path)
            if len(name) * 3 > sizes.NAME_BYTES:
                raise self.unfit(id, f"a name is over {sizes.NAME_BYTES // 3:,} characters", path)
            item[attribute] = av
            side.note(attribute, tags, attribute != name)
        self.seal(item, side)
        return item

    def check(self, id: Value, path: str, value: Value) -> None:
        """Raises DoesNotFit for an entry that no item can hold."""
        item = self.entry(id, path, value, {})
        self.places.sk(id, Place("", ""), path)
        self._check_size(id, path, item)

    def _attribute(self, name: str) -> str:
        if name in self._reserved:
            return percent.escape_first(name)
        if percent.looks_escaped(name) or not codec.speakable(name):
            return percent.escape(name, codec.ODD_NAME)
        return name

    @staticmethod
    def seal(item: Item, side: Side) -> Item:
        """The item with a side attribute."""
        held = side.wire()
        if held is None:
            item.pop(SIDE, None)
        else:
            item[SIDE] = held
        return item

    def stamped(self, item: Item, stamp: int) -> Item:
        """A copy of an entry's item with a stamp."""
        copy = dict(item)
        side = Side.of(item)
        side.more["stamp"] = {"N": str(stamp)}
        return self.seal(copy, side)

    def headed(self, item: Item, head: Head | None) -> Item:
        """A copy of a head's item that says something else of its block."""
        copy = dict(item)
        side = Side.of(item)
        side.more.pop("head", None)
        if head is not None:
            side.more["head"] = head.wire()
        return self.seal(copy, side)

    def _check_size(self, id: Value, sk: str, item: Item) -> None:
        size = sizes.item_size(item) + _ROOM
        if size > sizes.ITEM_BYTES:
            raise self.unfit(
                id,
                f"an entry of {size:,} bytes is over the limit of {sizes.ITEM_BYTES:,} for an item",
                sk,
                "cut it into smaller entries",
            )

    def unfit(self, id: Value, why: str, path: str = "", hint: str = "") -> DoesNotFit:
        return DoesNotFit(
            f"{show(id)[:200]}: {why}", key=id, path=path, where=self._where, hint=hint
        )

    # ------------------------------------------------------------ reading

    def id_of(self, seen: Seen) -> Value:
        """The block key of what lies at a place."""
        head = seen.entries.get(seen.place.prefix + self.places.head)
        return self.places.read_id(seen.id, Side.of(head).id if head is not None else None)

    def decode(self, seen: Seen) -> Block:
        """The block at a place. Raises Unreadable."""
        entries: Entries = {}
        expires = None
        head_sk = seen.place.prefix + self.places.head
        for sk, item in seen.entries.items():
            side = Side.of(item)
            found = self.places.find(item)
            assert found is not None
            ends = read_deadline(item, self.options.expires, side)
            if sk == head_sk or expires is None:
                expires = ends
            if sk == head_sk and seen.head is not None and seen.head.only:
                continue
            entries[found.path] = self._value(item, side, ends)
        return Block(self.id_of(seen), entries, expires, self.place_value(seen.place))

    def place_value(self, place: Place) -> Value:
        """The place as a block carries it, where the key does not say it all."""
        return list(place) if self.places.fields else None

    def _value(self, item: Item, side: Side, ends: int | None) -> Value:
        if REST in item:
            held, tags = codec.read(item[REST]), side.tags.get(REST)
            return codec.release(held, tags) if tags else held
        skipped = {*self.options.key_names, *self.options.attributes}
        if side.ours:
            skipped.add(SIDE)
        if self.options.class_attribute:
            skipped.add(self.options.class_attribute)
        if ends is not None:
            skipped.add(str(self.options.expires))
        record: dict[str, Value] = {}
        for attribute, av in item.items():
            if attribute in skipped:
                continue
            name = percent.unescape(attribute) if attribute in side.names else attribute
            if name in record:
                raise Unreadable(f"{name}: two attributes stand for this field")
            held, tags = codec.read(av), side.tags.get(attribute)
            record[name] = codec.release(held, tags) if tags else held
        return record
