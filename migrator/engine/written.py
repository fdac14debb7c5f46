"""What the owner last wrote under each key of the mirror: what else lies there is no write of its
own (R11).

A feed tells which keys were written, not by whom, and gives a key once for several writes. So
what lies under the key is compared with what the owner wrote there last. That is not asked of a
feed that counts writes, where it has shown as many as the owner made.

A feed that was lost may have gone with writes of the owner's own, as where a server was started
anew from what its disk held: then what it had replaced before lies there again. So that is
remembered, too, and until all keys were looked at an absent block proves nothing.
"""

from __future__ import annotations

import mmap
import time
from array import array
from collections.abc import Iterable
from typing import TypeVar

from migrator.engine.digests import exact
from migrator.journal import Touch
from migrator.model.block import Block, join
from migrator.model.canonical import encode
from migrator.model.path import child
from migrator.model.rules import CorruptBlock
from migrator.model.value import Value
from migrator.route import Unread

T = TypeVar("T")

# Keys that are remembered, at 16 bytes each; in each place there is room for some of them.
REMEMBERED = 1 << 19
_ROOM = 4
# What was replaced, at 8 bytes each, of whatever keys.
_REPLACED = 1 << 19
# Keys whose writes the feed has still to show, and for how many seconds it is asked for them.
_AWAITED = 50_000
_PATIENCE = 10.0
# What may lie under one key whose answers never came; of more than so many nobody knows.
_DOUBTS = 100
# What stands for no block; that of a block has the second bit, and the first for a deadline.
_REMOVED = 1
_NUMBER = (1 << 64) - 4


class Written:
    """Digests by key, of one collection, of what was written there last.

    ``forgets``: others of Migrator's write there as well, or the store itself, so that nothing is
    known.
    """

    def __init__(self) -> None:
        self.forgets = False
        self._slots: memoryview | None = None
        # Of keys that were sent and not answered: what may lie there, and last what was sent.
        self._doubt: dict[bytes, list[int]] = {}
        # Of a feed that has shown that it counts; of another it would only take room.
        self._awaited: dict[bytes, tuple[int, float]] = {}
        self._counts = False
        # What was told of somebody else's writes, until it is written over.
        self._told: dict[bytes, int] = {}
        # The fields that the mirror's own store changes whenever it is written; of which keys that
        # was told, and what was last written of them without those.
        self._usual: frozenset[str] = frozenset()
        self._left: dict[bytes, None] = {}
        self._rest: dict[bytes, int] = {}
        self._former: memoryview | None = None
        self._overflown = self._lost = False

    def sends(self, blocks: Iterable[Block], gone: Iterable[Value] = ()) -> list[bytes]:
        """These are about to be written, and those removed: until that was answered either what
        lay there before may lie there, or they do. Returns the canonical forms of their keys."""
        blocks = list(blocks)
        sent = {encode(block.id): _digest(block) for block in blocks}
        for block in blocks if self._usual else ():
            _put_bounded(self._rest, encode(block.id), _without(block, self._usual))
        sent |= {encode(key): _REMOVED for key in gone}
        for form, digest in sent.items():
            options = self._options(form)
            if len(options) > _DOUBTS:
                self._put(form, 0)
                options = [0]
            self._doubt[form] = [*options, digest]
        return list(sent)

    def answered(self, forms: Iterable[bytes]) -> None:
        """What was sent of these is there now."""
        now, awaited = time.monotonic(), self._awaited
        for form in forms:
            self._put(form, self._doubt.pop(form)[-1])
            self._told.pop(form, None)
            if not self._counts:
                continue
            times, _ = awaited.pop(form, (0, 0.0))
            awaited[form] = (times + 1, now)
            if len(awaited) > _AWAITED:
                del awaited[next(iter(awaited))]

    def refused(self, forms: Iterable[bytes]) -> None:
        """What was sent last of these is not there, and never will be."""
        for form in forms:
            if len(self._doubt[form]) > 2:
                self._doubt[form].pop()
            else:
                del self._doubt[form]

    def found(self, key: Value, held: Block | None) -> None:
        """This lies there, and is to be taken for our own."""
        if not isinstance(held, Unread):
            form = encode(key)
            self._doubt.pop(form, None)
            self._put(form, _REMOVED if held is None else _digest(held))

    def knows(self, key: Value) -> bool:
        """Whether it is known what was last written under a key."""
        return 0 not in self._options(encode(key))

    def holds(self, key: Value, held: Block | None) -> bool | None:
        """Whether what lies there was written there by the owner, last; None where nobody knows."""
        form = encode(key)
        options = self._options(form)
        if held is None:
            # Where there was a deadline it may have been reached.
            unknown = self._lost or 0 in options or any(each & 1 for each in options)
            return True if _REMOVED in options else None if unknown else False
        if isinstance(held, Unread):
            return None if self._lost or 0 in options else False
        digest = _digest(held)
        if digest in options or (self._lost and self._was_replaced(form, digest)):
            return True
        return None if 0 in options or (self._lost and self._overflown) else False

    def expects(self, touch: Touch) -> bool:
        """Whether a touch is of no more writes than the owner has made and the feed not shown."""
        if not touch.writes:
            return False
        self._counts = True
        form = encode(touch.key)
        times, at = self._awaited.pop(form, (0, 0.0))
        left = times - touch.writes
        if left > 0:
            self._awaited[form] = (left, at)
        return touch.writes <= times and time.monotonic() < at + _PATIENCE

    def forget_touches(self) -> None:
        """A feed was lost, and perhaps touches of the owner's writes."""
        self._awaited.clear()

    def lost(self) -> None:
        """This side's feed was lost, and perhaps writes of the owner's."""
        self._lost = True
        self._awaited.clear()

    def regained(self) -> None:
        """All keys were looked at since."""
        self._lost = False

    def forget(self) -> None:
        """Applications write there from now on."""
        self._doubt.clear()
        self._awaited.clear()
        self._told.clear()
        self._left.clear()
        self._rest.clear()
        self._usual = frozenset()
        self._slots = self._former = None
        self._overflown = self._lost = False

    def told(self, key: Value, held: Block | None) -> None:
        """What lies there is somebody else's, and was told."""
        _put_bounded(self._told, encode(key), _REMOVED if held is None else _digest(held))

    def is_news(self, key: Value, held: Block | None) -> bool:
        """Whether what lies there was not told as somebody else's, or was written over since."""
        return self._told.get(encode(key)) != (_REMOVED if held is None else _digest(held))

    def leaves(self, key: Value, fields: frozenset[str]) -> bool:
        """What is in these fields of a key comes again whenever it is undone; whether that is news.
        Each is one of the block's own, the empty one stands for all of it."""
        form = encode(key)
        if fields and "" not in fields and not fields <= self._usual:
            self._usual |= fields
            self._rest.clear()
        news = form not in self._left
        _put_bounded(self._left, form, None)
        return news

    def is_usual(self, key: Value, held: Block | None) -> bool:
        """Whether what lies there is what the owner wrote last, but for fields that come again."""
        if not self._usual or held is None or isinstance(held, Unread):
            return False
        return self._rest.get(encode(key)) == _without(held, self._usual)

    # ------------------------------------------------------------------ the memory

    def replaces(self, key: Value, held: Block | None) -> None:
        """What lies there is about to be written over: should it lie there again, it is no news."""
        if self.forgets or held is None or isinstance(held, Unread):
            return
        if self._former is None:
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            self._former = memoryview(mmap.mmap(-1, 8 * _REPLACED, flags=flags)).cast("Q")
        number, first = _version(encode(key), _digest(held))
        room = self._former[first : first + _ROOM]
        before = room.tolist()
        if number not in before:
            self._overflown |= before[-1] != 0
            room[:] = array("Q", [number, *before[:-1]])

    def _was_replaced(self, form: bytes, digest: int) -> bool:
        if self._former is None:
            return False
        number, first = _version(form, digest)
        return number in self._former[first : first + _ROOM].tolist()

    def _options(self, form: bytes) -> list[int]:
        """What may lie there; 0 for what nobody knows."""
        return self._doubt.get(form) or [self._get(form)]

    def _get(self, form: bytes) -> int:
        if self._slots is None:
            return 0
        name, first = _place(form)
        for at in range(first, first + 2 * _ROOM, 2):
            if self._slots[at] == name:
                return self._slots[at + 1]
        return 0

    def _put(self, form: bytes, digest: int) -> None:
        """Remember it, where there is no more room instead of what was put first there."""
        if self.forgets:
            return
        if self._slots is None:
            # Zeros that take no memory before they are written to.
            size = 16 * REMEMBERED
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
            self._slots = memoryview(mmap.mmap(-1, size, flags=flags)).cast("Q")
        name, first = _place(form)
        room = self._slots[first : first + 2 * _ROOM]
        held = room.tolist()
        names = held[::2]
        at = 2 * (names.index(name) if name in names else _ROOM - 1)
        room[: at + 2] = array("Q", [name, digest, *held[:at]])


def _place(form: bytes) -> tuple[int, int]:
    """What stands for a key, and where its place begins."""
    name = hash(form) & ((1 << 64) - 1)
    return name, 2 * _ROOM * (name % (REMEMBERED // _ROOM))


def _version(form: bytes, digest: int) -> tuple[int, int]:
    """What stands for a block that lay under a key, and where its place begins."""
    number = hash((form, digest)) & ((1 << 64) - 1) or 1
    return number, _ROOM * (number % (_REPLACED // _ROOM))


def _put_bounded(of: dict[bytes, T], form: bytes, value: T) -> None:
    """Keep it, instead of what was put there first where there are too many."""
    of.pop(form, None)
    of[form] = value
    if len(of) > _AWAITED:
        del of[next(iter(of))]


def _without(block: Block, fields: frozenset[str]) -> int:
    """What stands for a block but for some of its fields; each time another where it is none."""
    try:
        value = join(block).value
    except CorruptBlock:
        return id(block)
    rest = {name: item for name, item in value.items() if child("", name) not in fields}
    return exact(Block(block.id, {"": rest}, block.expires))


def _digest(block: Block) -> int:
    return exact(block) & _NUMBER | 2 | (block.expires is not None)


__all__ = ["Written"]
