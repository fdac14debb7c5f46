"""Layout ``item``: a block is one item, an entry one attribute, named by its access path.

The key attribute holds the block key. It is also the entry of its own name where the block has
that entry with the same value, as ``username`` of the literature's Player. The remainder (the
entry with the empty path) lies in ``_``. What others can't see stands in one side attribute,
which is absent where there is nothing to say:

    _migrator: {
      tags:  {<attribute>: {<path below it, . for itself>: tag}},
      names: {<attributes whose names are escaped>},
      id:    tag of the block key,
      expires: the deadline in milliseconds where the TTL attribute's whole seconds differ,
      key:   false where the key attribute is no entry although it could be
      sum:   a sum of all this, for conditional writes
    }
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from migrator.errors import DoesNotFit
from migrator.model import percent
from migrator.model.block import Block
from migrator.model.path import escape, parse_path
from migrator.model.rules import CorruptBlock, Entries, Representation, assemble
from migrator.model.value import Value, show
from migrator.stores.dynamodb import codec, keys, sizes
from migrator.stores.dynamodb.codec import Av, Item, Unreadable
from migrator.stores.dynamodb.options import REST, SIDE, Options
from migrator.stores.dynamodb.side import Side
from migrator.stores.dynamodb.template import Computed

_encode = msgspec.json.Encoder().encode
_NAMES_KEPT = 20_000


class ItemShape:
    """Blocks to items and back."""

    def __init__(self, options: Options, representation: Representation, where: str) -> None:
        self.options = options
        self._rules = representation
        self._where = where
        self._key = options.hash.name
        self.computed = Computed(options, where)
        self._reserved = options.reserved
        self._attributes: dict[str, str] = {}
        self._paths: dict[str, str] = {}
        self.key_path = escape(self._key)
        shown = representation.partition({self._key: "x"})
        # Whether an entry of this representation can have the name of the key attribute.
        self.key_is_entry = shown.keys() == {self.key_path}

    # ------------------------------------------------------------ names

    def attribute(self, path: str) -> tuple[str, bool]:
        """The attribute of an entry, and whether its name is escaped."""
        name = self._attributes.get(path)
        if name is None:
            name = self._attribute(path)
            if len(self._attributes) < _NAMES_KEPT:
                self._attributes[path] = name
        return name, name != path and path != ""

    def _attribute(self, path: str) -> str:
        if path == "":
            return REST
        if path in self._reserved:
            return percent.escape_first(path)
        if percent.looks_escaped(path) or not _plain(path):
            return percent.escape(path, codec.ODD_NAME)
        return path

    def path(self, name: str, escaped: bool) -> str:
        """The access path of an attribute; a name that is no path is a field of that name."""
        if name == REST and not escaped:
            return ""
        if escaped:
            return percent.unescape(name)
        path = self._paths.get(name)
        if path is None:
            try:
                parse_path(name)
                path = name
            except ValueError:
                path = escape(name)
            if len(self._paths) < _NAMES_KEPT:
                self._paths[name] = path
        return path

    # ------------------------------------------------------------ writing

    def encode(self, block: Block) -> tuple[Item, bytes]:
        """The item of a block, also as JSON. Raises DoesNotFit where there can't be one."""
        encoded = self.encoded(block)
        if encoded is None:
            raise self.too_large(block, sizes.item_size(self.item(block)))
        return encoded

    def encoded(self, block: Block) -> tuple[Item, bytes] | None:
        """As ``encode``; None where the block is too large for an item."""
        item, most = self.item(block), self.options.most
        raw = _encode(item)
        # JSON is longer than what the service counts, so most need no counting.
        if len(raw) > most and sizes.item_size(item) > most:
            return None
        return item, raw

    def too_large(self, block: Block, size: int) -> DoesNotFit:
        largest = max(
            block.entries, key=lambda path: sizes.size(codec.hold(block.entries[path], {}))
        )
        return self.unfit(
            block.id,
            f"an item of {size:,} bytes is over the limit of {sizes.ITEM_BYTES:,}",
            largest,
            "cut it into entries of their own and use layout item-collection, or set "
            "oversize='split' on the move",
        )

    def item(self, block: Block) -> Item:
        """The item of a block, however large. Raises DoesNotFit."""
        if not block.entries:
            raise self.unfit(block.id, "a block has no entry")
        key, tag = self.key(block.id)
        item: Item = {self._key: key}
        side = Side(id=tag)
        if block.expires is not None:
            item[self._expires(block)] = deadline(block.expires, side)
        for path, value in block.entries.items():
            av, tags = self.hold(block.id, path, value)
            if path == self.key_path and self.key_is_entry and av == key and not tags:
                continue
            name, escaped = self.attribute(path)
            item[name] = av
            side.note(name, tags, escaped)
        side.key = self._says_key(block.entries, item)
        item |= self.computed.of(block)
        self.computed.check(block.id, item)
        if held := side.wire():
            item[SIDE] = held
        return item

    def _says_key(self, entries: Entries, item: Mapping[str, Av]) -> bool | None:
        """False where a reader would else take the key attribute for an entry."""
        shared = self.key_path in entries and self.attribute(self.key_path)[0] not in item
        return None if shared or REST in item else False

    def key(self, id: Value) -> tuple[Av, str | None]:
        """The key attribute and the tag of the key. Raises DoesNotFit."""
        try:
            return keys.hold(id, self.options.hash.type)
        except DoesNotFit as error:
            raise self.unfit(id, error.what) from None

    def hold(self, id: Value, path: str, value: Value) -> tuple[Av, dict[str, str]]:
        """The attribute value of an entry, and its tags. Raises DoesNotFit."""
        tags: dict[str, str] = {}
        try:
            av = codec.hold(value, tags)
            deep = sizes.nests_too_deep(av)
        except RecursionError:
            deep = True
        except TypeError as error:
            raise self.unfit(id, str(error), path) from None
        if deep:
            raise self.unfit(id, f"it nests deeper than {sizes.NESTING} levels", path)
        if len(path) > sizes.NAME_BYTES // 4 and len(path.encode("utf-8", "replace")) * 3 > (
            sizes.NAME_BYTES
        ):
            raise self.unfit(id, f"its name is over {sizes.NAME_BYTES:,} bytes", path[:100])
        return av, tags

    def _expires(self, block: Block) -> str:
        if self.options.expires is None:
            raise self.unfit(
                block.id,
                "the block has an expiry and the layout no attribute for it",
                hint='declare one: item(expires="expireAt")',
            )
        return self.options.expires

    def unfit(self, id: Value, why: str, path: str = "", hint: str = "") -> DoesNotFit:
        return DoesNotFit(
            f"{show(id)[:200]}: {why}", key=id, path=path, where=self._where, hint=hint
        )

    # ------------------------------------------------------------ reading

    def id_of(self, item: Item) -> Value:
        """The block key of an item. Raises Unreadable."""
        return keys.read(item[self._key], Side.of(item).id)

    def decode(self, item: Item) -> Block:
        """The block of an item. Raises Unreadable."""
        side = Side.of(item)
        id_ = keys.read(item[self._key], side.id)
        expires = read_deadline(item, self.options.expires, side)
        skipped = {self._key, *self.options.attributes}
        if side.ours:
            skipped.add(SIDE)
        if expires is not None:
            skipped.add(str(self.options.expires))
        entries: Entries = {}
        if self.key_is_entry and REST not in item and side.key is not False:
            entries[self.key_path] = codec.read(item[self._key])
        for name, av in item.items():
            if name in skipped:
                continue
            path = self.path(name, name in side.names)
            if path in entries:
                raise Unreadable(f"{path}: two attributes stand for this entry")
            tags = side.tags.get(name)
            value = codec.read(av)
            entries[path] = codec.release(value, tags) if tags else value
        return Block(id_, self._conforming(entries, side, item), expires)

    def _conforming(self, entries: Entries, side: Side, item: Item) -> Entries:
        """Items of others have a field an attribute, whatever the representation says."""
        if self.key_is_entry or REST in item or side.key is False:
            return entries
        try:
            record = assemble(entries)
            record.setdefault(self._key, codec.read(item[self._key]))
            return self._rules.partition(record)
        except CorruptBlock as error:
            raise Unreadable(str(error)) from None


def _plain(path: str) -> bool:
    return path.isascii() or not any("\ud800" <= char <= "\udfff" for char in path)


def deadline(millis: int, side: Side) -> Av:
    """The TTL attribute: whole seconds, rounded up, so that no block ends before its time.

    The exact deadline, where it is another, is noted aside.
    """
    if millis % 1000:
        side.expires = millis
    return {"N": str(-(-millis // 1000))}


def read_deadline(item: Mapping[str, Any], name: str | None, side: Side) -> int | None:
    """The deadline in milliseconds, where the TTL attribute holds one as the service sees it."""
    held = item.get(name, {}).get("N") if name else None
    if held is None:
        return None
    seconds = codec.read_number(held)
    if type(seconds) is not int:
        return None
    if side.expires is not None and -(-side.expires // 1000) == seconds:
        return side.expires
    return seconds * 1000
