"""A stream being read: several shards side by side, each from its own place on.

A marker is met once it has shown in every shard that is in hand, as its records have the order of
the writes; and once all that was written together with it has shown, and the shards were listed
since. Where it does not show in a shard, more of it is written, until one of its items falls there.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from migrator.errors import FeedLost, MigratorError, Transient
from migrator.journal import Touch, Touches
from migrator.model.canonical import encode
from migrator.ports import Json
from migrator.stores.dynamodb import markers
from migrator.stores.dynamodb.edge import EXPIRED, code_of, is_throttle
from migrator.stores.dynamodb.shards import KEPT, Gone, Spot, move_on

if TYPE_CHECKING:
    from migrator.stores.dynamodb.codec import Item
    from migrator.stores.dynamodb.streams import StreamJournal

_AT_ONCE = 2_000
_LIMIT = 1_000
_READERS = 8
_MOST_SHARDS = 16
# Seconds between two looks at a shard that gives nothing, and between two listings of shards.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.15
_LISTED_EVERY = 10.0
# Seconds of nothing but empty answers after which a shard counts as read up to so long ago.
_QUIET = 60.0
# Seconds for which a shard whose end was read is waited for to be followed by others.
_CHILDLESS = 60.0
_TOLD_EVERY = 600.0
_FIRST_THROTTLE, _LONGEST_THROTTLE = 0.1, 5.0
_FIRST_ROUND, _LONGEST_ROUND = 0.3, 5.0
_MOST_MARKERS = 2_000
_REMEMBERED = 1_000


@dataclass
class _Reading:
    """A shard in hand. Times are of this process's own clock."""

    id: str
    spot: Spot
    iterator: str | None = None
    read: str = ""
    due: float = 0.0
    pause: float = _FIRST_PAUSE
    throttle: float = _FIRST_THROTTLE
    quiet_since: float = 0.0
    ended_at: float = 0.0
    over: bool = False
    """Whether its last record was fetched; it has ended once that was given, too."""


@dataclass
class _Page:
    """Records of a shard that were fetched and not given yet."""

    shard: _Reading
    records: list[Any]
    last: bool


@dataclass
class _Mark:
    """A marker that was seen: in which shards, and which of each set of its items."""

    name: str
    shown: set[str] = field(default_factory=set)
    sets: dict[str, set[int]] = field(default_factory=dict)
    whole: bool = False
    listed: bool = False
    due: float = 0.0
    wait: float = _FIRST_ROUND


class StreamFeed:
    """A stream from a front on. ``latest``: spots at the start are where their shards end now."""

    def __init__(
        self, journal: StreamJournal, arn: str, front: Mapping[str, Spot], *,
        latest: bool = False, marks: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._journal = journal
        self._arn = arn
        self._shards = {id: _Reading(id, spot, read=spot.after) for id, spot in front.items()}
        self._pages: deque[_Page] = deque()
        self._marks = {code: _Mark(name) for code, name in (marks or {}).items()}
        self._others: dict[str, None] = {}
        self._met: dict[str, None] = {}
        # Sets of markers that were met, and how many each has: removed once that is durable.
        self._spent: dict[tuple[str, str], int] = {}
        self._told: Json = None
        self._told_at = time.monotonic()
        self._listed_at = float("-inf")
        self._changed = False
        self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="stream")
        for shard in self._shards.values():
            if shard.spot.ended:
                shard.over, shard.ended_at = True, time.monotonic()
        try:
            if latest:
                for shard in self._shards.values():
                    if not shard.over:
                        shard.iterator = self._iterator(shard, "LATEST")
            else:
                self._look()
        except BaseException:
            self.close()
            raise

    @property
    def position(self) -> Json:
        """Behind what was given so far."""
        return {
            "stream": self._arn,
            "shards": {shard.id: shard.spot.json() for shard in self._shards.values()},
            "marks": {code: mark.name for code, mark in self._marks.items()},
        }

    def close(self) -> None:
        self._pool.shutdown()

    def acknowledge(self, position: Json) -> None:
        """The service keeps no positions. Markers that lie before this one have served."""
        if position != self._told or not self._spent:
            return
        spent = [markers.all_of(*told, count) for told, count in self._spent.items()]
        try:
            self._journal.remove([each for made in spent for each in made])
        except Transient:
            return  # with the next ones
        self._spent.clear()

    def poll(self, seconds: float) -> Touches | None:
        end = time.monotonic() + seconds
        while True:
            if not self._pages:
                self._fetch()
            if (given := self._given()) is not None:
                self._told, self._told_at = given.position, time.monotonic()
                self._changed = False
                return given
            now = time.monotonic()
            if now >= end:
                return None
            if not self._pages:
                due = min((s.due for s in self._shards.values() if not s.over), default=end)
                time.sleep(max(0.0, min(end - now, max(due - now, 0.001))))

    # ------------------------------------------------------------------ shards

    def _look(self) -> None:
        """List the shards, and take up those that follow. Raises FeedLost."""
        listed = self._journal.listed(self._arn)
        self._listed_at = now = time.monotonic()
        before = {id: shard.spot for id, shard in self._shards.items()}
        try:
            front = move_on(before, listed, time.time())
        except Gone as error:
            raise lost(str(error), self._journal.where) from None
        for id in before.keys() - front.keys():
            del self._shards[id]
        for id, spot in front.items():
            if id in self._shards:
                self._shards[id].spot = spot
            else:
                self._shards[id] = _Reading(id, spot)
        self._changed = self._changed or before.keys() != front.keys()
        for mark in self._marks.values():
            mark.listed = True
            mark.due = mark.due or now + mark.wait

    def _look_if_due(self) -> None:
        now = time.monotonic()
        since = now - self._listed_at
        ended = any(shard.spot.ended for shard in self._shards.values())
        unlisted = any(not mark.listed for mark in self._marks.values())
        if since < _LISTED_EVERY and not unlisted and not (ended and since > _LONGEST_PAUSE):
            return
        try:
            self._look()
        except Transient as error:
            if not is_throttle(error):
                raise
            self._listed_at = now  # and so later

    # ------------------------------------------------------------------ fetching

    def _fetch(self) -> None:
        """Ask the shards whose turn it is for what they have."""
        self._look_if_due()
        self._write_more()
        now = time.monotonic()
        due = sorted(
            (s for s in self._shards.values() if not s.over and s.due <= now), key=lambda s: s.due
        )[:_MOST_SHARDS]
        asked = time.time()
        for shard, answer in zip(due, self._ask_all(due), strict=True):
            if answer is None:
                continue  # it is to be asked later
            records = answer.get("Records") or []
            shard.iterator = answer.get("NextShardIterator")
            shard.over = shard.iterator is None
            if records or shard.over:
                if records:
                    shard.read = str(records[-1]["dynamodb"]["SequenceNumber"])
                self._pages.append(_Page(shard, records, shard.over))
                shard.pause, shard.due, shard.quiet_since = _FIRST_PAUSE, 0.0, 0.0
                continue
            shard.quiet_since = shard.quiet_since or asked
            if asked - shard.quiet_since > _QUIET:
                shard.spot = replace(shard.spot, time=asked - _QUIET)
            shard.due = now + shard.pause
            shard.pause = min(shard.pause * 1.5, _LONGEST_PAUSE)

    def _ask_all(self, shards: list[_Reading]) -> Iterator[Any]:
        if len(shards) < 2:
            yield from map(self._ask, shards)
            return
        runs = [self._pool.submit(copy_context().run, self._ask, shard) for shard in shards]
        for run in runs:
            yield run.result()

    def _ask(self, shard: _Reading) -> Any:
        """The next records of a shard; None where it is to be asked again later."""
        try:
            if shard.iterator is None:
                shard.iterator = self._iterator(shard)
            try:
                answer = self._records(shard.iterator)
            except MigratorError as error:
                if code_of(error.__cause__) != EXPIRED:
                    raise
                # It is good for minutes alone; what it stood for is known.
                shard.iterator = self._iterator(shard)
                answer = self._records(shard.iterator)
        except Transient as error:
            if not is_throttle(error):
                raise
            shard.due = time.monotonic() + shard.throttle
            shard.throttle = min(shard.throttle * 2, _LONGEST_THROTTLE)
            return None
        shard.throttle = _FIRST_THROTTLE
        return answer

    def _records(self, iterator: str) -> Any:
        with self._journal.gone():
            return self._journal.ask("GetRecords", ShardIterator=iterator, Limit=_LIMIT)

    def _iterator(self, shard: _Reading, start: str = "TRIM_HORIZON") -> str:
        """A place in a shard to read on from. Raises FeedLost where it may be gone."""
        now = time.time()
        if not shard.spot.is_kept(now):
            # At the start of a shard the service would begin with what it still has.
            why = f"it was not read for {KEPT / 3600:.0f} hours"
            if shard.spot.time > now:
                why = (
                    "it was read by a clock that was ahead, so nobody knows for how long it was not"
                )
            raise lost(why, self._journal.where)
        request = {"StreamArn": self._arn, "ShardId": shard.id, "ShardIteratorType": start}
        if shard.read:
            request |= {
                "ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": shard.read,
            }  # fmt: skip
        with self._journal.gone():
            return str(self._journal.ask("GetShardIterator", **request)["ShardIterator"])

    # ------------------------------------------------------------------ giving

    def _given(self) -> Touches | None:
        touches: dict[bytes, Touch] = {}
        oldest = now = time.time()
        while self._pages and len(touches) < _AT_ONCE:
            page = self._pages.popleft()
            for record in page.records:
                oldest = min(oldest, self._take(record, page.shard, touches))
            if page.last:
                page.shard.spot = replace(page.shard.spot, ended=True)
                page.shard.ended_at = time.monotonic()
                self._changed = True
        marks = [self._meet(code) for code, mark in list(self._marks.items()) if self._is_met(mark)]
        stale = time.monotonic() - self._told_at > _TOLD_EVERY
        if not touches and not marks and not self._changed and not stale:
            return None
        age = max(0.0, now - oldest - 1.0)  # the service tells whole seconds
        return Touches(list(touches.values()), self.position, marks=marks, age=age)

    def _take(self, record: Any, shard: _Reading, touches: dict[bytes, Touch]) -> float:
        """Note what a record touched; when it was written."""
        told = record["dynamodb"]
        removed = record["eventName"] == "REMOVE"
        at = float(told.get("ApproximateCreationDateTime") or time.time())
        shard.spot = replace(shard.spot, after=str(told["SequenceNumber"]), time=at)
        key: Item = told["Keys"]
        marker = markers.read(key[self._journal.options.hash.name])
        if marker is not None:
            if not removed:
                self._see(marker, key, told.get("NewImage"), shard)
            return at
        images = [told[name] for name in ("OldImage", "NewImage") if told.get(name)]
        ids, root = self._journal.followed.keys(key, images)
        for id in ids:
            form = encode(id)
            before = touches.pop(form, None)
            deleted = (removed and root) or (before is not None and before.deleted)
            touches[form] = Touch(id, deleted)
        return at

    # ------------------------------------------------------------------ markers

    def _see(self, marker: markers.Marker, key: Item, image: Item | None, shard: _Reading) -> None:
        code = marker.code
        if code in self._others:
            return
        mark = self._marks.get(code)
        if mark is None and code in self._met:
            self._spent[code, marker.set] = marker.of
            return
        if mark is None:
            said = markers.said_by(image) if image else self._journal.marked(key)
            if said is None or said[0] != self._journal.run:
                # Another run's, or removed long ago: it was met before.
                _remember(self._others, code)
                return
            mark = self._marks[code] = _Mark(said[1])
        self._spent[code, marker.set] = marker.of
        mark.shown.add(shard.id)
        seen = mark.sets.setdefault(marker.set, set())
        seen.add(marker.index)
        mark.whole = mark.whole or len(seen) >= marker.of

    def _is_met(self, mark: _Mark) -> bool:
        return mark.listed and mark.whole and not any(self._missing(mark))

    def _missing(self, mark: _Mark) -> Iterator[str]:
        """The shards in which a marker still has to show; what has ended was read to its end, and
        is followed by others that are to be listed."""
        now = time.monotonic()
        for shard in self._shards.values():
            if shard.spot.ended:
                if now - shard.ended_at < _CHILDLESS:
                    yield shard.id
            elif shard.id not in mark.shown:
                yield shard.id

    def _meet(self, code: str) -> str:
        _remember(self._met, code)
        return self._marks.pop(code).name

    def _write_more(self) -> None:
        """More items of the markers that do not show everywhere, under other keys."""
        now = time.monotonic()
        for code, mark in self._marks.items():
            if not mark.listed or now < mark.due or self._is_met(mark):
                continue
            count = min(_MOST_MARKERS, max(16, 3 * len(self._shards)))
            mark.due, mark.wait = now + mark.wait, min(mark.wait * 1.5, _LONGEST_ROUND)
            made = markers.new_set(code, count)
            self._spent[code, made[0].set] = count
            self._journal.put_markers(made, mark.name)


def lost(why: str, where: str) -> FeedLost:
    return FeedLost(
        f"the stream is lost: {why}",
        where=where,
        hint="a stream keeps 24 hours; both sides are scanned anew",
    )


def _remember(seen: dict[str, None], code: str) -> None:
    seen[code] = None
    while len(seen) > _REMEMBERED:
        del seen[next(iter(seen))]
