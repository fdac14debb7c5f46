"""What the owner last wrote under each key of the mirror: what else lies there is no write of its
own (R11).

A feed tells which keys were written, not by whom, and gives a key once for several writes. So
what lies under the key is compared with what the owner wrote there last. That is not asked of a
feed that counts writes, where it has shown as many as the owner made.
"""

from __future__ import annotations

import mmap
import time
from array import array
from collections.abc import Iterable

from migrator.engine.digests import exact
from migrator.journal import Touch
from migrator.model.block import Block
from migrator.model.canonical import encode
from migrator.model.value import Value
from migrator.route import Unread

# Keys that are remembered, at 16 bytes each; in each place there is room for some of them.
REMEMBERED = 1 << 19
_ROOM = 4
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
        self._awaited: dict[bytes, tuple[int, float]] = {}
        # What was told of somebody else's writes, until it is written over.
        self._told: dict[bytes, int] = {}

    def sends(self, blocks: Iterable[Block], gone: Iterable[Value] = ()) -> list[bytes]:
        """These are about to be written, and those removed: until that was answered either what
        lay there before may lie there, or they do. Returns the canonical forms of their keys."""
        sent = {encode(block.id): _digest(block) for block in blocks}
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
        options = self._options(encode(key))
        if held is None:
            # Where there was a deadline it may have been reached.
            unknown = 0 in options or any(each & 1 for each in options)
            return True if _REMOVED in options else None if unknown else False
        if not isinstance(held, Unread) and _digest(held) in options:
            return True
        return None if 0 in options else False

    def expects(self, touch: Touch) -> bool:
        """Whether a touch is of no more writes than the owner has made and the feed not shown."""
        form = encode(touch.key)
        times, at = self._awaited.pop(form, (0, 0.0))
        left = times - touch.writes
        if left > 0 and touch.writes:
            self._awaited[form] = (left, at)
        return 0 < touch.writes <= times and time.monotonic() < at + _PATIENCE

    def forget_touches(self) -> None:
        """The feed was lost, and with it touches of the owner's writes."""
        self._awaited.clear()

    def forget(self) -> None:
        """Applications write there from now on."""
        self._doubt.clear()
        self._awaited.clear()
        self._told.clear()
        self._slots = None

    def told(self, key: Value, held: Block | None) -> None:
        """What lies there is somebody else's, and was told."""
        form = encode(key)
        self._told.pop(form, None)
        self._told[form] = _REMOVED if held is None else _digest(held)
        if len(self._told) > _AWAITED:
            del self._told[next(iter(self._told))]

    def is_news(self, key: Value, held: Block | None) -> bool:
        """Whether what lies there was not told as somebody else's, or was written over since."""
        return self._told.get(encode(key)) != (_REMOVED if held is None else _digest(held))

    # ------------------------------------------------------------------ the memory

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


def _digest(block: Block) -> int:
    return exact(block) & _NUMBER | 2 | (block.expires is not None)


__all__ = ["Written"]
