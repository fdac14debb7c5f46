"""The feed of the layout ``item-split``: the streams of its two tables, read side by side.

They have no common order, and need none: a touch only names a key, and the block is read when it is
acted on (R1). A marker is written to both, and met once both have shown it. A block that turns from
an item into a collection, or back, is removed at one place: that is no delete, which is told from
one by what lies at the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from migrator.errors import Refused
from migrator.journal import Touch, Touches
from migrator.model.canonical import encode
from migrator.model.value import Value
from migrator.ports import Json
from migrator.retry import request as by_retry
from migrator.stores.dynamodb.feed import StreamFeed
from migrator.stores.dynamodb.streams import StreamJournal

SIDES = ("small", "large")
Lying = Callable[[Sequence[Value]], Iterable[Value]]
"""Those of some keys that lie in a table."""

_REMEMBERED = 1_000
_IDLE = 0.01


class SplitJournal:
    """The streams of both tables, read for one run. ``beside``: what lies in the other table."""

    def __init__(
        self, small: StreamJournal, large: StreamJournal, beside: dict[str, Lying]
    ) -> None:
        self._of = {"small": small, "large": large}
        self._beside = beside
        self.where = small.where

    def describe(self) -> str:
        small, large = (journal.table.name for journal in self._of.values())
        return f"streams of the tables {small} and {large}"

    def findings(self) -> Iterable[tuple[str, str, str]]:
        small, large = self._of.values()
        yield from small.findings()
        for severity, code, text in large.findings():
            yield severity, code, f"{large.table.name}: {text}"
        if small.table.describe() is not None and large.table.describe() is None:
            yield (
                "error", "no-large",
                f"there is no table {large.table.name}, where blocks that are too large for an "
                "item lie: make it before",
            )  # fmt: skip

    def prepare(self) -> Json:
        for severity, code, text in self.findings():
            if (severity, code) == ("error", "no-large"):
                raise Refused(text, where=self.where)
        return {**{side: self._of[side].prepare() for side in SIDES}, "met": {}}

    def open(self, position: Json) -> SplitFeed:
        if not isinstance(position, dict) or position.keys() != {*SIDES, "met"}:
            raise Refused(f"{position!r} is no position in two streams", where=self.where)
        met: Any = position["met"]
        small = self._of["small"].open(position["small"])
        try:
            feeds = {"small": small, "large": self._of["large"].open(position["large"])}
        except BaseException:
            small.close()
            raise
        return SplitFeed(feeds, {side: position[side] for side in SIDES}, met, self._beside)

    def mark(self, name: str) -> None:
        for journal in self._of.values():
            journal.mark(name)

    def drop(self) -> None:
        try:
            self._of["small"].drop()
        finally:
            self._of["large"].drop()


class SplitFeed:
    """Both streams being read. ``met``: the markers that one side alone has shown so far."""

    def __init__(
        self,
        feeds: dict[str, StreamFeed],
        at: dict[str, Json],
        met: dict[str, str],
        beside: dict[str, Lying],
    ) -> None:
        self._feeds = feeds
        self._at = at
        self._met = dict(met)
        self._beside = beside
        self._turn = list(SIDES)

    def close(self) -> None:
        for feed in self._feeds.values():
            feed.close()

    def acknowledge(self, position: Json) -> None:
        assert isinstance(position, dict)
        for side, feed in self._feeds.items():
            feed.acknowledge(position[side])

    def poll(self, seconds: float) -> Touches | None:
        end = time.monotonic() + seconds
        while True:
            for side in self._turn:
                given = self._feeds[side].poll(0)
                if given is not None:
                    self._turn.sort(key=lambda each: each == side)  # the other's turn is next
                    return self._given(side, given)
            left = end - time.monotonic()
            if left <= 0:
                return None
            time.sleep(min(left, _IDLE))

    def _given(self, side: str, given: Touches) -> Touches:
        touches = self._told(side, given.touches)
        marks = []
        for name in given.marks:
            if self._met.get(name, side) != side:
                del self._met[name]
                marks.append(name)
            else:
                self._met[name] = side
        while len(self._met) > _REMEMBERED:
            del self._met[next(iter(self._met))]  # of one that was not written to both
        self._at = {**self._at, side: given.position}
        position: Json = {**self._at, "met": dict(self._met)}
        return replace(given, touches=touches, position=position, marks=marks)

    def _told(self, side: str, touches: Sequence[Touch]) -> list[Touch]:
        """The touches, of which none is a delete that only went from here to the other table."""
        gone = [touch.key for touch in touches if touch.deleted]
        there = {encode(id) for id in by_retry(self._beside[side], gone)} if gone else set()
        return [
            Touch(touch.key, touch.deleted and encode(touch.key) not in there) for touch in touches
        ]
