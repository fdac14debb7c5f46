"""How many touches are acted on at once: all that wait, each key once.

What is written often costs no more for it, and requests that read many keys are cheaper than many
requests. But nobody waits long for a batch to grow, least of all under a fence.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from migrator.engine.reading import MOST, Reading
from migrator.journal import Touch, Touches
from migrator.model.canonical import encode

# For how long to gather touches. Where fewer came at once than are many there is no more behind
# them: the store is asked again after a pause, for its writers' sake.
_GATHER = 0.1
_MANY = 50
_PAUSE = 0.01


def gather(
    reading: Reading, seconds: float, *, hurry: bool = False, mark: str = ""
) -> Touches | None:
    """All touches that wait, None where none comes within so many seconds. ``hurry`` and ``mark``
    as in ``Lane.turn``."""
    given = reading.poll(seconds)
    if given is None:
        return None
    feed = reading.feed
    touches: dict[bytes, Touch] = {}
    _merge(touches, given.touches)
    now = time.monotonic()
    until, soon, last = now + _GATHER, now + _PAUSE if mark else now, len(touches)
    while len(touches) < MOST and time.monotonic() < until:
        if last < _MANY and not hurry:
            time.sleep(_PAUSE)
        elif last < _MANY and (mark in given.marks or time.monotonic() >= soon):
            break
        more = reading.poll(max(0.0, soon - time.monotonic()))
        if more is None:
            break
        last = len(more.touches)
        _merge(touches, more.touches)
        given = Touches(
            (), more.position or given.position, given.whole or more.whole,
            [*given.marks, *more.marks], max(given.age, more.age),
        )  # fmt: skip
    if reading.feed is not feed:
        # Of a feed that is no more: all of it comes again, or was lost. A marker counts only
        # with the place behind it, where the reverse journal may begin.
        given.position, given.marks = None, []
    return replace(given, touches=list(touches.values()))


def _merge(touches: dict[bytes, Touch], more: Sequence[Touch]) -> None:
    """Each key once; that it was deleted is kept, and of how many writes, where that is counted."""
    for touch in more:
        form = encode(touch.key)
        if (old := touches.get(form)) is not None:
            writes = old.writes + touch.writes if old.writes and touch.writes else 0
            touches[form] = Touch(touch.key, old.deleted or touch.deleted, writes)
        else:
            touches[form] = touch


__all__ = ["gather"]
