"""Writing blocks of entries: each one is one step in its own partition, atomic and isolated.

What lies there is read first: a write is stamped later than what it replaces (R10), and only
what is there and has to go gets a tombstone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NoReturn

from migrator.errors import DoesNotFit, Terminal
from migrator.model import json_text as codec
from migrator.model.block import Block, Patch
from migrator.model.block import name as block_name
from migrator.model.rules import Entries
from migrator.model.value import Value
from migrator.stores.cassandra.entries_form import Cell, Change, Form, Raw, number
from migrator.stores.cassandra.entries_read import Reader, key_of
from migrator.stores.cassandra.seen import Pristine, ended, lasts, until_seen
from migrator.stores.cassandra.table import Node
from migrator.stores.cassandra.table_rows import AFTER_2038, EXPIRES, MAX_TTL
from migrator.stores.cassandra.table_wire import Statement, Unit, Wire
from migrator.stores.cassandra.table_write import time_to_live

MAX_KEY = 65_535
# One mutation is at most half a segment of the commit log, 16 MiB by default, and so is a message.
MAX_BYTES = 12_000_000
# The protocol counts the statements of a batch in 16 bits.
MAX_ENTRIES = 60_000


@dataclass(slots=True)
class Encoded:
    """A block ready to be sent."""

    block: Block
    key: bytes
    cells: dict[bytes, Cell]
    size: int


class Writer:
    """Changes the blocks of one table."""

    def __init__(
        self,
        wire: Wire,
        form: Form,
        table: str,
        reader: Reader,
        node: Node,
        where: tuple[str, str],
        pristine: Pristine,
    ) -> None:
        self._wire = wire
        self._form = form
        self._table = table
        self._reader = reader
        self._node = node
        self._cls, self.where = where
        self.pristine = pristine

    # ------------------------------------------------------------ what fits

    def encode(self, block: Block) -> Encoded:
        """A block as bytes. Raises DoesNotFit where it has no form here, of whatever size."""
        if not block.entries:
            self.unfit(block.id, "", "a block has no entry")
        key, cells = self.key(block.id), self.cells(block.id, block.entries)
        size = len(key) + sum(
            16 + len(name) + len(value) + len(tags or b"") for name, (value, tags) in cells.items()
        )
        if len(cells) > MAX_ENTRIES:
            self.unfit(block.id, "", f"it has {len(cells):,} entries; {MAX_ENTRIES:,} fit")
        if block.expires is not None:
            self._check_deadline(block.id, block.expires)
        return Encoded(block, key, cells, size)

    def _check_deadline(self, id: Value, expires: int) -> None:
        if expires - time.time() * 1000 > MAX_TTL * 1000:
            why = "its deadline is more than 20 years away, the longest that Cassandra keeps"
            self.unfit(id, EXPIRES, why)
        if expires > self._node.latest_expiry:
            self.unfit(id, EXPIRES, AFTER_2038)

    def fitting(self, block: Block) -> Encoded:
        """As ``encode``. Raises DoesNotFit also for what is too large for one write."""
        each = self.encode(block)
        if each.size > MAX_BYTES:
            why = f"it has {each.size:,} bytes, over the {MAX_BYTES:,} of one write"
            self.unfit(block.id, "", why)
        return each

    def key(self, id: Value) -> bytes:
        """A block key as its column holds it. Raises DoesNotFit."""
        try:
            key = key_of(id)
        except codec.UNFIT as error:
            self.unfit(id, "", f"it can't be a key: {error}")
        if len(key) > MAX_KEY:
            self.unfit(id, "", f"its key has {len(key):,} bytes; {MAX_KEY:,} fit")
        return key

    def cells(self, id: Value, entries: Entries) -> dict[bytes, Cell]:
        """Entries as cells, by their names. Raises DoesNotFit."""
        cells: dict[bytes, Cell] = {}
        for path, value in entries.items():
            try:
                name = name_of(path)
                text, tags = codec.dump(value)
            except codec.UNFIT as error:
                self.unfit(id, path, f"{path or 'it'} can't be held: {error}")
            if len(name) > MAX_KEY:
                self.unfit(id, path, f"the name of an entry has {len(name):,} bytes")
            cells[name] = text.encode(), None if tags is None else tags.encode()
        return cells

    def unfit(self, id: Value, path: str, why: str) -> NoReturn:
        """Say what of a block can't be held."""
        raise DoesNotFit(
            f"{block_name(self._cls, id)}: {why}",
            key=id,
            path=path,
            where=self.where,
            hint="change it, or set oversize='quarantine' on the move",
        )

    # ------------------------------------------------------------ whole blocks

    def write(self, blocks: Sequence[Block]) -> int:
        """Put whole blocks; the bytes sent. Raises DoesNotFit before anything is written."""
        by_key = {each.key: each for each in map(self.fitting, blocks)}
        before = list(self._reader.there(list(by_key)))
        pairs = [
            (each, old or Raw(each.key)) for each, old in zip(by_key.values(), before, strict=True)
        ]
        self._wire.run(self._putting(*pair) for pair in pairs)
        if not self.pristine.holds:
            new = [pair for pair, old in zip(pairs, before, strict=True) if old is None]
            until_seen(new, self._hidden, self._put_later, self.where)
        return sum(each.size for each in by_key.values())

    def _hidden(self, put: Sequence[tuple[Encoded, Raw]]) -> list[tuple[Encoded, Raw]]:
        """Those of some blocks that are not there though they were put, and not to end soon."""
        lasting = [pair for pair in put if lasts(pair[0].block.expires)]
        there = self._reader.there([each.key for each, _ in lasting])
        return [
            (each, mine)
            for (each, mine), found in zip(lasting, there, strict=True)
            # Where somebody has written since, that is what lies there.
            if found is None
            or (found.stamp <= mine.stamp and not each.cells.keys() <= found.fields.keys())
        ]

    def _put_later(self, put: Sequence[tuple[Encoded, Raw]], later: int) -> None:
        for _, before in put:
            before.stamp += later
        self._wire.run(self._putting(*pair) for pair in put)

    def _putting(self, each: Encoded, before: Raw) -> Unit:
        return _unit(each.block.id, lambda: self._whole(each, before))

    def _whole(self, each: Encoded, before: Raw) -> list[Statement]:
        expires = each.block.expires
        if ended(expires):
            return [self._deletion(before)]  # a deadline already reached is a delete (R10)
        gone = [name for name in before.fields if name not in each.cells]
        return self._change(before, each.cells, gone, expires)

    def _change(
        self, before: Raw, put: Mapping[bytes, Cell], gone: Sequence[bytes], expires: int | None
    ) -> list[Statement]:
        stamp, ttl = self._stamp(before), time_to_live(expires)
        change = Change(before.key, put, gone, expires, stamp, ttl, before)
        return self._form.change(self._table, change)

    def _stamp(self, before: Raw) -> int:
        """A stamp later than what lies there, and than any that was given for it before."""
        before.stamp = max(self._node.stamp(), before.stamp + 1)
        return before.stamp

    def delete(self, ids: Sequence[Value]) -> None:
        """Remove blocks; those that are not there are no error."""
        by_key = {self.key(id): id for id in ids}
        found = [raw for raw in self._reader.there(list(by_key)) if raw is not None]
        self._wire.run(self._removing(by_key[raw.key], raw) for raw in found)

    def _removing(self, id: Value, before: Raw) -> Unit:
        return _unit(id, lambda: [self._deletion(before)])

    def _deletion(self, before: Raw) -> Statement:
        self.pristine.holds = False
        return Statement(
            f"DELETE FROM {self._table} USING TIMESTAMP ? WHERE block = ?",  # noqa: S608
            [number(self._stamp(before)), before.key],
        )

    # ------------------------------------------------------------ single entries

    def patch(self, patches: Sequence[Patch]) -> None:
        """Set and remove entries. Raises Terminal for a block that is not there."""
        for patch in patches:
            key, cells = self.key(patch.id), self.cells(patch.id, patch.set)
            names = set(map(name_of, patch.unset))
            (before,) = self._reader.there([key])
            if before is None or not before.fields or ended(before.expires):
                raise Terminal(
                    f"there is no block {block_name(self._cls, patch.id)}",
                    where=self.where,
                    hint="put the whole block first",
                )
            gone = [name for name in names if name in before.fields and name not in cells]
            if len(gone) == len(before.fields) and not cells:
                self.unfit(patch.id, "", "a block has no entry")
            if cells or gone:
                change = partial(self._change, before, cells, gone, before.expires)
                self._wire.run([_unit(patch.id, change)])


@lru_cache(maxsize=65_536)
def name_of(path: str) -> bytes:
    """What the entry at an access path is called. Raises one of UNFIT."""
    return codec.to_text(path).encode()


def _unit(id: Value, made: Callable[[], list[Statement]]) -> Unit:
    return Unit(id, made(), made)
