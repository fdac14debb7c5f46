"""The journal of Cassandra: brackets that gateways leave beside the data, in buckets of a second.

Nothing is atomic there, so a touch is opened before the write and closed after it (R1, R8). Buckets
are of the cluster's time, not of a gateway's clock. The reader looks at the newest ones all the
time, and again and again at all in which something may still appear: a bracket that took longer to
be opened than its life has no write behind it, so that is not for long. What stays open is taken
for written once its write can no longer be alive.
"""

from __future__ import annotations

import itertools
import secrets
import struct
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from migrator.errors import FeedLost, Terminal, Transient
from migrator.journal import Kept, Touch, Touches
from migrator.model import json_text as codec
from migrator.model.value import Value
from migrator.ports import Json
from migrator.retry import request
from migrator.stores.cassandra.table import Node
from migrator.stores.cassandra.table_ddl import name_in
from migrator.stores.cassandra.table_wire import Row, Statement, Unit

LIFE = 5.0
"""Seconds from before a bracket is opened until which its write may be sent."""
SKEW = 5.0
"""Seconds by which the clocks of the cluster's nodes may differ."""
KEPT = 86_400
"""Seconds for which touches are kept."""

_OPEN, _CLOSED, _MARK, _START = b"o", b"c", b"m", b"s"
_NOBODY = bytes(16)
_AT_ONCE, _TOLD = 2_000, 100
# Seconds: how far back a look goes that is no full one, at least and at most; and how far ahead of
# the reader's a gateway's idea of the cluster's time may be.
_NEW, _HOT, _AHEAD = 0.5, 2, 2
_FULL_EVERY, _IDLE = 1.0, 0.01
# Buckets that are asked for in one request, and rows of its answers.
_TOGETHER, _FETCH = 16, 2_000
# Of what feeds of this process have given: a later one's are higher.
_numbers = itertools.count(1)
_SPARE = 3600  # seconds before touches expire from which on they are not relied on


class _Table:
    """The table of touches of one run and side."""

    def __init__(self, node: Node, where: str, name: str) -> None:
        self.node = node
        self.where = where
        self.name = f"{name}_touch"
        self.table = name_in(node.keyspace, self.name)

    def now(self) -> float:
        return self.node.cluster_time()

    def since(self, buckets: Sequence[int], at: float) -> Iterator[Row]:
        """The touches of some buckets that were begun at a time or later."""
        query = (
            f"SELECT bucket, id, key, state, deleted FROM {self.table} "  # noqa: S608
            "WHERE bucket IN ? AND id >= ?"
        )
        first = _big(int(at * 1_000_000))
        asked = (
            Statement(query, [_listed(buckets[i : i + _TOGETHER]), first], _FETCH)
            for i in range(0, len(buckets), _TOGETHER)
        )
        for rows in self.node.wire.at(self.where).each(asked):
            yield from rows

    def put(self, key: str, state: bytes, *, deleted: bool = False) -> tuple[int, bytes]:
        """Write a touch, durably; its bucket, and its name, which sorts by time."""
        now = self.now()
        bucket, id = int(now), _big(int(now * 1_000_000)) + secrets.token_bytes(8)

        def statement() -> Statement:
            return Statement(
                f"INSERT INTO {self.table} (bucket, id, key, state, deleted) "  # noqa: S608
                "VALUES (?, ?, ?, ?, ?) USING TIMESTAMP ?",
                [_big(bucket), id, key.encode(), state, bytes([deleted]), self._stamp()],
            )

        self.run(statement)
        return bucket, id

    def close(self, bucket: int, id: bytes, *, deleted: bool) -> None:
        def statement() -> Statement:
            return Statement(
                f"UPDATE {self.table} USING TIMESTAMP ? SET state = ?, deleted = ? "  # noqa: S608
                "WHERE bucket = ? AND id = ?",
                [self._stamp(), _CLOSED, bytes([deleted]), _big(bucket), id],
            )

        self.run(statement)

    def run(self, statement: Callable[[], Statement]) -> None:
        wire = self.node.wire.at(self.where)
        wire.run([Unit(None, [statement()], lambda: [statement()])])

    def _stamp(self) -> bytes:
        return _big(self.node.stamp())


def _big(number: int) -> bytes:
    return struct.pack(">q", number)


def _listed(numbers: Sequence[int]) -> bytes:
    """A list of bigints."""
    items = b"".join(struct.pack(">iq", 8, number) for number in numbers)
    return struct.pack(">i", len(numbers)) + items


class CassandraBrackets:
    """What a gateway leaves."""

    life = LIFE

    def __init__(self, node: Node, where: str, name: str) -> None:
        self._table = _Table(node, where, name)

    def open(self, key: Value, *, deleted: bool = False) -> Json:
        text = codec.to_text(key)
        try:
            bucket, id = self._table.put(text, _OPEN, deleted=deleted)
        except Terminal as error:
            # The run has ended under this write: the control database says so in a moment.
            raise Transient(error.what, where=error.where, hint=error.hint) from error
        return [bucket, id.hex(), text, deleted]

    def close(self, bracket: Json, *, undone: bool = False) -> None:
        assert isinstance(bracket, list)
        bucket, id, key, deleted = bracket
        deleted = deleted and not undone
        self._table.close(bucket, bytes.fromhex(id), deleted=deleted)
        if self._table.now() - bucket > LIFE:
            # Where its writer slept it may have been reaped: closing always adds a touch (R8).
            self._table.put(key, _CLOSED, deleted=deleted)


class CassandraJournal:
    """What an owner reads."""

    rounds = 1

    def __init__(self, node: Node, where: str, name: str, settle: Callable[[Value], None]) -> None:
        self.table = _Table(node, where, name)
        self.where = where
        self.settle = settle
        self._lock = threading.Lock()
        # The feeds that are open here, and the markers that such as were closed have not shown.
        self._feeds = weakref.WeakSet[CassandraFeed]()
        self._left: list[str] = []

    def describe(self) -> str:
        return f"what gateways note beside {self.where}"

    def findings(self) -> Iterable[tuple[str, str, str]]:
        yield (
            "warning",
            "cassandra-gateway",
            "Cassandra shows no writes: only those that go by a gateway are followed",
        )

    def prepare(self) -> Json:
        wire, table = self.table.node.wire.at(self.where), self.table.table
        wire.define(
            f"CREATE TABLE IF NOT EXISTS {table} (bucket bigint, id blob, key text, state text, "
            f"deleted boolean, PRIMARY KEY (bucket, id)) WITH default_time_to_live = {KEPT} "
            "AND compaction = {'class': 'TimeWindowCompactionStrategy', "
            "'compaction_window_unit': 'HOURS', 'compaction_window_size': 1}"
        )
        wire.forget()
        values = [_big(-1), _NOBODY, str(int(self.table.now())).encode(), _START]
        wire.few(
            f"INSERT INTO {table} (bucket, id, key, state) VALUES (?, ?, ?, ?) "  # noqa: S608
            "IF NOT EXISTS USING TTL 0",
            values,
        )
        ((began,),) = wire.few(
            f"SELECT key FROM {table} WHERE bucket = ? AND id = ?",  # noqa: S608
            values[:2],
        )
        return {"table": self.identity(), "low": int(began or b"0") - int(SKEW), "seen": []}

    def identity(self) -> str:
        """Which table it is: one that was made anew has another. Raises FeedLost for none."""
        node = self.table.node
        found = node.wire.at(self.where).few(
            "SELECT id FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?",
            [node.keyspace.encode(), self.table.name.encode()],
        )
        if not found:
            raise _lost("its table is gone", self.where)
        return (found[0][0] or b"").hex()

    def open(self, position: Json) -> CassandraFeed:
        feed = CassandraFeed(self, position)
        with self._lock:
            feed.asked, self._left = self._left, []
            self._feeds.add(feed)
        return feed

    def closed(self, feed: CassandraFeed) -> None:
        """What a feed was asked to show, and nobody has acted on, the next one shows."""
        with self._lock:
            if feed in self._feeds:
                self._feeds.remove(feed)
                self._left += feed.owed()

    def kept(self) -> Kept:
        return Kept(window=float(KEPT - _SPARE))

    def mark(self, name: str) -> None:
        """Where it is read here no row tells of it: the reader's next pass begins after this."""
        with self._lock:
            for feed in self._feeds:
                feed.asked.append(name)
            if self._feeds:
                return
        self.table.put(name, _MARK)

    def drop(self) -> None:
        with self._lock:
            self._left.clear()
        wire = self.table.node.wire.at(self.where)
        wire.define(f"DROP TABLE IF EXISTS {self.table.table}")
        wire.forget()


def _lost(why: str, where: str) -> FeedLost:
    return FeedLost(
        f"what gateways noted is lost: {why}", where=where, hint="both sides are scanned anew"
    )


def _began(name: str) -> float:
    """When a touch was begun, in seconds since 1970 by the cluster's clock."""
    return int(name[:16], 16) / 1_000_000


@dataclass
class _Open:
    """A bracket that is open: since when, by the reader's own clock."""

    key: str
    bucket: int
    deleted: bool
    since: float


@dataclass
class _Mark:
    """A marker that was seen; ``waits`` are the brackets that it is behind, once that is known."""

    name: str
    bucket: int
    waits: set[str] | None = None


class CassandraFeed:
    """The journal being read."""

    def __init__(self, journal: CassandraJournal, position: Json) -> None:
        self._journal = journal
        self._table = journal.table
        assert isinstance(position, dict)
        if position["table"] != journal.identity():
            raise _lost("its table was made anew", journal.where)
        self._low = int(position["low"])
        if self._low < self._table.now() - KEPT + _SPARE:
            raise _lost(f"it was not read for a day ({KEPT:,} s)", journal.where)
        self._uuid = position["table"]
        # Of what was delivered the id, and the bucket where that is known.
        self._done: dict[str, int] = dict.fromkeys(position["seen"], self._low)
        self._open: dict[str, _Open] = {}
        self._queue: deque[tuple[str, int, Touch]] = deque()
        self._queued: set[str] = set()
        # A marker waits for a pass over everything that began after it was seen, and then for the
        # brackets that were open by then.
        self._marks: dict[str, _Mark] = {}
        self._full_at = float("-inf")
        self._dead_after = LIFE + self._table.node.wire.request_life + SKEW
        # For how long something may still appear in a bucket, and until when all was looked at.
        self._window = LIFE + SKEW + 1
        self._looked = self._low + self._window
        # How far back a look goes that is no full one, and how late touches were since the last.
        self._back, self._latest = float(_HOT), 0.0
        # The markers of this process, which no row tells of: those to look for, those that a pass
        # was made for since, and those that were given, by the number of what they came with.
        self.asked: list[str] = []
        self._passed: list[_Mark] = []
        self._shown: dict[int, list[str]] = {}

    @property
    def brackets(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """The session is the store's own."""
        self._journal.closed(self)

    def owed(self) -> list[str]:
        """The markers of this process that nobody has acted on yet."""
        shown = [name for names in self._shown.values() for name in names]
        return [*shown, *(mark.name for mark in self._passed), *self.asked]

    def acknowledge(self, position: Json) -> None:
        """Touches expire by themselves."""
        done = int(str(position["given"])) if isinstance(position, dict) else 0
        self._shown = {given: names for given, names in self._shown.items() if given > done}

    def poll(self, seconds: float) -> Touches | None:
        end = time.monotonic() + seconds
        while True:
            if not self._queue:
                self._look()
            given = self._given()
            left = end - time.monotonic()
            if given is not None or left <= 0:
                return given
            if not self._due():  # who has written a marker waits for it
                time.sleep(min(left, _IDLE))

    # ------------------------------------------------------------------ looking

    def _due(self) -> list[_Mark]:
        """The markers that were seen and wait for a pass over what lies before them."""
        return [mark for mark in self._marks.values() if mark.waits is None]

    def _look(self) -> None:
        now, began = self._table.now(), time.monotonic()
        # For those of this process it is that pass by itself, which begins behind them.
        own, due = list(self.asked), self._due()
        full = bool(due or own) or began - self._full_at >= _FULL_EVERY
        first = self._looked - self._window if full else self._newest(now)
        buckets = list(range(int(first), int(now) + _AHEAD + 1))
        if full:
            first = 0.0  # also where a bracket is open from before
            buckets[:0] = sorted({x.bucket for x in self._open.values() if x.bucket < buckets[0]})
        try:
            for row in self._table.since(buckets, first):
                self._take(row, now)
        except Terminal:
            if self._journal.identity() != self._uuid:  # raises FeedLost where it is gone
                raise _lost("its table was made anew", self._journal.where) from None
            raise
        self._reap()
        if full:
            self._full_at, self._looked = began, max(now, self._looked)
            for mark in due:
                mark.waits = set(self._open)
            self._passed += [_Mark(name, int(now), set(self._open)) for name in own]
            del self.asked[: len(own)]
            self._back, self._latest = min(_HOT, max(_NEW, 1.1 * self._latest)), 0.0
            self._advance(now)

    def _newest(self, now: float) -> float:
        """From when on a look takes touches that is no full one, which finds all others: back to
        the oldest bracket that may be closed soon, and as far as touches came late just now."""
        began = [at for name in self._open if (at := _began(name)) > now - _HOT]
        return min([now - self._back, *began])

    def _take(self, row: Row, now: float) -> None:
        held, id, key, state, deleted = row
        if held is None or id is None or key is None:
            return  # closed after its bracket had expired: it was reaped long ago
        name = id.hex()
        if name in self._done or name in self._queued:
            return
        bucket = int.from_bytes(held, "big", signed=True)
        if state == _MARK:
            self._marks.setdefault(name, _Mark(key.decode(), bucket))
            return
        was = self._open.pop(name, None)
        if was is None:  # also by a gateway that goes by the clock of another node
            self._latest = max(self._latest, now - _began(name))
        if state == _OPEN:
            new = _Open(key.decode(), bucket, deleted == b"\1", time.monotonic())
            self._open[name] = was or new
        else:
            self._add(name, bucket, key.decode(), deleted == b"\1")

    def _add(self, name: str, bucket: int, key: str, deleted: bool) -> None:
        self._queued.add(name)
        touch = Touch(codec.from_text(key, codec.load), deleted)
        self._queue.append((name, bucket, touch))

    def _reap(self) -> None:
        """Take for written what can't be alive any more, settled on all replicas (R8)."""
        now = time.monotonic()
        for name, was in list(self._open.items()):
            if now - was.since >= self._dead_after:
                request(self._journal.settle, codec.from_text(was.key, codec.load))
                del self._open[name]
                self._add(name, was.bucket, was.key, was.deleted)

    def _advance(self, now: float) -> None:
        """Nothing more can appear before the oldest bracket that may be alive."""
        waiting = [was.bucket for was in self._open.values()]
        waiting += [bucket for _, bucket, _ in self._queue]
        waiting += [mark.bucket for mark in self._marks.values()]
        low = min([int(now - self._window), *waiting])
        if low > self._low:
            self._low = low
            self._done = {name: at for name, at in self._done.items() if at >= low}

    # ------------------------------------------------------------------ giving

    def _given(self) -> Touches | None:
        touches: dict[str, Touch] = {}
        while self._queue and len(touches) < _AT_ONCE:
            name, bucket, touch = self._queue.popleft()
            self._queued.discard(name)
            self._done[name] = bucket
            form = codec.to_text(touch.key)
            before = touches.pop(form, None)
            deleted = touch.deleted or (before is not None and before.deleted)
            touches[form] = Touch(touch.key, deleted)
        own: list[str] = []
        marks: list[str] = []
        if not self._queue:
            marks, own = list(self._met()), list(self._met_here())
        if not touches and not marks and not own:
            return None
        number = next(_numbers)
        if own:
            self._shown[number] = own
        return Touches(list(touches.values()), self._position(number), marks=[*marks, *own])

    def _met(self) -> Iterator[str]:
        for name, mark in list(self._marks.items()):
            if mark.waits is not None and not mark.waits & self._open.keys():
                self._done[name] = mark.bucket
                del self._marks[name]
                yield mark.name

    def _met_here(self) -> Iterator[str]:
        for mark in list(self._passed):
            if not (mark.waits or set()) & self._open.keys():
                self._passed.remove(mark)
                yield mark.name

    def _position(self, number: int) -> Json:
        # Where these are too many some touches come again, which does no harm.
        seen = list(self._done) if len(self._done) <= _TOLD else []
        return {"table": self._uuid, "low": self._low, "seen": seen, "given": number}
