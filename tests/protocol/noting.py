"""Brackets as they are: the gateway's (`migrator.gateway.noting`) and those of Cassandra, with the
owner's reader of them, on a table in memory, in schedules drawn from seeds; and every step of it
told to the model of `writing.py`, which has to allow it.

One key, one gateway and its successors, and an owner that reads the key and writes the mirror.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from migrator.gateway import noting
from migrator.gateway.follower import Moved
from migrator.gateway.noting import Noting
from migrator.journal import Feed
from migrator.model.value import Value
from migrator.stores.cassandra import journal
from migrator.stores.cassandra.journal import (
    LIFE,
    CassandraBrackets,
    CassandraFeed,
    CassandraJournal,
)
from tests.protocol.checker import Action
from tests.protocol.draws import Decisions, Draws
from tests.protocol.writing import CHECKED, IDLE, NONE, OPEN, SENT, Brackets, Noted, NotingBounds

WRITES = 6
ENOUGH = 40
REQUEST_LIFE = 2.0
BEGAN = 1_000_000.0
_FAULTS = ("gateway.crash", "gateway.sleeps", "gateway.unknown")


class NotAllowed(AssertionError):
    """The model refuses what was done, or both sides differ at the end."""


class _Killed(BaseException):
    """The gateway's process is gone."""


@dataclass(frozen=True)
class _Late:
    until: float
    lands: bool
    version: int


@dataclass
class World:
    """The table of touches, the clock, the primary and the mirror, and the model beside them."""

    seed: int
    sleeps: bool  # between its look at a bracket's age and its write; or it may be killed, not both
    now: float = BEGAN
    request_life: float = REQUEST_LIFE
    name: str = "store"
    keyspace: str = "keyspace"
    value: int = 1
    mirror: int = 1
    stamped: int = 0
    told: list[str] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)  # of brackets, in the model
    opened: dict[int, float] = field(default_factory=dict)  # when their gateways began to count
    table: dict[int, dict[bytes, list[bytes | None]]] = field(default_factory=dict)
    late: list[_Late] = field(default_factory=list)
    given: Decisions | None = None

    def __post_init__(self) -> None:
        self.draws = Draws(self.seed, self.given)
        self.model = Brackets(NotingBounds(WRITES, tuple(sorted(_FAULTS * WRITES))))
        self.state: Noted = self.model.initial()
        self.reading = self.closes_late = False
        self.feed: Feed

    def tell(self, name: str, key: Any = ()) -> None:
        action = Action(name, key)
        after = self.model.step(self.state, action)
        self.told.append(str(action))
        if after is None:
            tale = "; ".join(self.told)
            raise NotAllowed(f"seed {self.seed}: the model refuses {action}, after {tale}")
        self.state = after

    # ------------------------------------------------------------------ the clock, as a module

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.passes(seconds)

    def passes(self, seconds: float) -> None:
        """Time goes on: requests without an answer end, brackets come to be too old."""
        end = self.now + seconds
        for request in sorted(self.late, key=lambda request: request.until):
            if request.until <= end:
                self.ages(request.until)
                n = [late.version for late in self.state.late].index(request.version)
                self.tell("call.lands" if request.lands else "call.dies", n)
                self.late.remove(request)
                if request.lands:
                    self.value = max(self.value, request.version)
        self.ages(end)

    def ages(self, now: float) -> None:
        self.now = now
        for bracket in self.state.brackets:
            began = self.opened.get(bracket.name)
            if began is not None and not bracket.aged and now >= began + LIFE - noting.MARGIN:
                self.tell("bracket.ages", bracket.name)

    def step(self) -> None:
        """Between two things that a gateway does."""
        self.draws.step()
        writer = self.state.writer
        quick = writer.at == SENT or (writer.at == CHECKED and not self.sleeps)
        self.passes(0.05)
        if not quick and self.draws.chance(0.2):
            self.passes(self.draws.choice((0.5, 3.4, LIFE, 30.0)))
        if self.draws.chance(0.3):
            self.owner()
        if not self.sleeps and writer.at != IDLE and self.draws.chance(0.08):
            raise _Killed

    # ------------------------------------------------------------------ the table, as Cassandra's

    @property
    def wire(self) -> World:
        return self

    def at(self, _: str) -> World:
        return self

    def stamp(self) -> int:
        self.stamped += 1
        return self.stamped

    def cluster_time(self) -> float:
        return self.now

    def few(self, cql: str, _: Sequence[object] = ()) -> list[tuple[bytes]]:
        return [(b"\1",)]

    def run(self, units: Sequence[Any]) -> None:
        (statement,) = units[0].first
        values = statement.values
        if statement.cql.startswith("INSERT"):
            bucket, id, key, state, deleted, _ = values
            if state == b"o":
                self._opens(bucket, id)
            elif self.closes_late:
                self.names[id.hex()] = self.state.names - 1  # the touch that closing has added
            self._put(bucket, id, [key, state, deleted])
        else:
            self.step()
            _, state, deleted, bucket, id = values
            names = self.state.names
            self.tell("gateway.close")
            self.closes_late = self.state.names > names
            row = self.table.get(struct.unpack(">q", bucket)[0], {}).get(id)
            if row is not None:
                row[1:] = [state, deleted]

    def _opens(self, bucket: bytes, id: bytes) -> None:
        self.tell("gateway.open")
        name = self.names[id.hex()] = self.state.writer.bracket
        self.opened[name] = self.now
        try:
            self.step()
        except _Killed:
            self.tell("gateway.crash")
            self.tell("bracket.dies", name)
            raise
        feed = cast("CassandraFeed", self.feed)
        (second,) = struct.unpack(">q", bucket)
        looked_at = {was.bucket for was in feed._open.values()}
        if second < int(feed._looked - feed._window) and second not in looked_at:
            self.tell("reader.passes")
        self.tell("gateway.opened")

    def _put(self, bucket: bytes, id: bytes, row: list[bytes | None]) -> None:
        self.table.setdefault(struct.unpack(">q", bucket)[0], {})[id] = row

    def each(self, statements: Iterable[Any]) -> Iterator[list[tuple[bytes | None, ...]]]:
        for statement in statements:
            listed, first = statement.values
            held = [
                (bucket, self.table.get(struct.unpack(">q", bucket)[0], {}))
                for _, bucket in struct.iter_unpack(">i8s", listed[4:])
            ]
            yield [
                (bucket, id, *row)
                for bucket, rows in held
                for id, row in rows.items()
                if id >= first
            ]

    # ------------------------------------------------------------------ the owner

    def settle(self, _: Value) -> None:
        """Asked for just before a bracket is taken for written."""
        feed = cast("CassandraFeed", self.feed)
        now = self.now
        due = [n for n, was in feed._open.items() if now - was.since >= feed._dead_after]
        self.tell("reader.reaps", self.names[due[0]])

    def owner(self) -> None:
        if self.reading:
            return
        self.reading = True
        feed = cast("CassandraFeed", self.feed)
        before = set(feed._done)
        given = feed.poll(0.0)
        if given is not None and given.touches:
            for name in (n for n in feed._done if n not in before and n in self.names):
                self.tell("owner.reads", self.names[name])
                self.tell("owner.writes")
            self.mirror = self.value
        self.reading = False

    # ------------------------------------------------------------------ a gateway

    def write(self, brackets: CassandraBrackets) -> None:
        """One write, begun anew as long as its brackets are too old."""
        while True:
            try:
                self._try(Noting(brackets, "k", deleted=False))
            except Moved:
                if self.state.writer.at != IDLE:
                    self.tell("gateway.leave")
                if not self.state.writes:
                    return
                continue
            except _Killed:
                if self.state.writer.bracket != NONE:
                    self._dies()
            return

    def _try(self, around: Noting) -> None:
        with around:
            self.step()
            around.check()
            self.tell("gateway.check")
            self.step()
            self.tell("gateway.send")
            version = self.state.writer.version
            fate = self.draws.below(8)
            if fate == 7 and not self.sleeps:
                self.tell("gateway.unknown")
                around.doubt()
                self._later(version)
                return
            self.step()
            self.value = max(self.value, version)
            self.tell("gateway.lands")

    def _dies(self) -> None:
        sent, version = self.state.writer.at == SENT, self.state.writer.version
        self.tell("gateway.crash")
        if sent:
            self._later(version)

    def _later(self, version: int) -> None:
        until = self.now + self.draws.choice((0.0, 1.0, REQUEST_LIFE - 0.1))
        self.late.append(_Late(until, not self.draws.chance(0.3), version))

    def ends(self) -> None:
        """Nobody writes any more, until the owner has read all there is."""
        for _ in range(ENOUGH):
            self.passes(1.0)
            self.owner()
        if not self.model.quiet(self.state) or self.mirror != self.value:
            raise NotAllowed(
                f"seed {self.seed}: the primary holds {self.value} and the mirror {self.mirror}, "
                f"after {'; '.join(self.told)}"
            )


def noted(seed: int, patch: pytest.MonkeyPatch, given: Decisions | None = None) -> World:
    """A drawn schedule, carried out and replayed. Raises NotAllowed."""
    world = World(seed, sleeps=seed % 2 == 0, given=given)
    patch.setattr(journal, "time", world)
    patch.setattr(noting, "boot_clock", world.monotonic)
    patch.setattr(noting, "log", cast("Any", _Quiet()))
    node = cast("Any", world)
    read = CassandraJournal(node, "store:games", "run", world.settle)
    world.feed = read.open({"table": "01", "low": int(BEGAN) - 5, "seen": []})
    brackets = CassandraBrackets(node, "store:games", "run")
    while world.state.writes:
        world.step()
        world.write(brackets)
    world.ends()
    return world


class _Quiet:
    def warning(self, *_: object, **__: object) -> None:
        pass


__all__ = ["OPEN", "NotAllowed", "World", "noted"]
