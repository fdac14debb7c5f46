"""A server of the tests' own, in memory, that answers as it is told: for schedules of the engine.

It is no stand-in for a real store: it holds blocks under keys, shows every write in a feed, can
deny writes, and does with each request what the world has drawn for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, cast

from migrator.errors import DamagedBlock, DoesNotFit, FeedLost, Transient
from migrator.journal import Touch, Touches
from migrator.model.block import Address, Block
from migrator.model.move import At
from migrator.model.rules import Entries
from migrator.model.value import Value
from migrator.ports import Json, Page

Fate = Literal["done", "refused", "lost", "late", "killed"]
LARGE = "large"  # of a value: the store that does not take it
DAMAGED = "damaged"  # one that can't be read


class Drawn(Protocol):
    """Who draws what becomes of a request, and does what happens meanwhile."""

    def step(self, where: str) -> None:
        """Others act, or the process is killed."""

    def hears(self, what: str, server: Server, about: object) -> None:
        """Something is done at a server, at this very moment."""

    def wait(self, seconds: float) -> None:
        """Nothing comes for so long."""

    def fate(self, what: str) -> Fate:
        """What becomes of a request that writes."""

    def later(self, server: Server, put: Sequence[Block], gone: Sequence[Value]) -> None:
        """A request without an answer, which may yet be carried out."""

    def flip(self, what: str) -> bool:
        """Whether something happens that need not."""

    def repeats(self) -> int:
        """How many events of before a feed shows again."""

    def is_late(self) -> bool:
        """Whether what is in a feed is not shown yet."""

    def kill(self) -> None:
        """The process ends here."""


@dataclass(frozen=True)
class Event:
    """One entry of a feed: a touch, a marker, or an event without keys."""

    key: Value = None
    deleted: bool = False
    mark: str = ""
    whole: bool = False


class Server:
    """One side: its blocks, its feed, its fence. It outlives every process of the engine."""

    def __init__(self, at: At, cls: str, world: Drawn, *, fences: bool) -> None:
        self.at = at
        self.cls = cls
        self.world = world
        self.blocks: dict[str, Entries] = {}
        self.log: list[Event] = []
        self.begins = 0  # what lies before is forgotten
        self.reign = 0  # another feed has another one
        self.counts = False  # whether the feed tells of how many writes a touch is
        self.attached = False
        self.readers = 0  # feeds that are open
        self.fenced = False
        self._fences = fences

    # ------------------------------------------------------------------ what applications do

    def put(self, key: str, entries: Entries) -> bool:
        """A write of the application; whether it was acknowledged."""
        if self.fenced:
            return False
        self.blocks[key] = entries
        self.log.append(Event(key))
        self.world.hears("put", self, key)
        return True

    def remove(self, key: str) -> bool:
        """A delete of the application; whether it was acknowledged."""
        if self.fenced:
            return False
        if self.blocks.pop(key, None) is not None:
            self.log.append(Event(key, deleted=True))
            self.world.hears("removed", self, key)
        return True

    def truncate(self) -> bool:
        """All keys at once, none of them in the feed; whether it was acknowledged."""
        if self.fenced:
            return False
        self.blocks.clear()
        self.log.append(Event(whole=True))
        return True

    def lose_feed(self) -> None:
        """What the feed held is gone, and so is the place in it."""
        self.reign += 1
        self.begins = len(self.log)
        self.attached = False

    def carry_out(self, put: Sequence[Block], gone: Sequence[Value]) -> None:
        """A write of Migrator's, which no fence denies."""
        for block in put:
            self.blocks[str(block.id)] = dict(block.entries)
            self.log.append(Event(block.id))
        for key in gone:
            if self.blocks.pop(str(key), None) is not None:
                self.log.append(Event(key, deleted=True))

    # ------------------------------------------------------------------ what the engine asks

    def create(self) -> None:
        self.world.step("create")

    def exists(self) -> bool:
        return True

    def count(self) -> int:
        return len(self.blocks)

    def settle(self) -> None:
        self.world.step("settle")

    def split(self, parts: int) -> list[Json]:
        return [[n, parts] for n in range(parts)]

    def needs_tag(self, value: Value) -> None:
        return None

    def same_key(self, id: Value) -> Value:
        return id

    def sample(self, size: int) -> Page:
        return self._page(sorted(self.blocks)[:size])

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        self._asked("page")
        self.world.hears("page", self, range_)
        return self._page(*self._list(range_, position, limit))

    def _page(self, keys: Sequence[str], following: Json = None) -> Page:
        good = [self._block(key) for key in keys if not self._damaged(key)]
        return Page(good, following, 0, [(key, "damaged") for key in keys if self._damaged(key)])

    def keys(self, range_: Json, position: Json, limit: int) -> tuple[list[Value], Json]:
        self._asked("keys")
        keys, following = self._list(range_, position, limit)
        return list(keys), following

    def _list(self, range_: Json, position: Json, limit: int) -> tuple[list[str], Json]:
        assert isinstance(range_, list)
        n, parts = range_
        after = "" if position is None else str(position)
        mine = [k for k in sorted(self.blocks) if int(k) % parts == n and k > after]
        return mine[:limit], (mine[limit - 1] if len(mine) > limit else None)

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        self._asked("read")
        for id in ids:
            if self._damaged(str(id)):
                raise DamagedBlock(f"{id} can't be read", where=str(self.at))
        found = [self._block(str(id)) if str(id) in self.blocks else None for id in ids]
        self.world.hears("read", self, ids)
        self.world.step("read")
        return found

    def damage(self, key: str) -> None:
        """What lies under a key can't be read any more; the feed shows nothing of it."""
        entry = self.blocks[key][""]
        assert isinstance(entry, dict)
        self.blocks[key] = {"": entry | {DAMAGED: True}}

    def _damaged(self, key: str) -> bool:
        return DAMAGED in self.blocks.get(key, {"": {}})[""]  # type: ignore[operator]

    def _block(self, key: str) -> Block:
        return Block(key, dict(self.blocks[key]))

    def _asked(self, what: str) -> None:
        self.world.step(what)
        if self.world.flip(what):
            raise Transient(f"no answer to {what}", where=str(self.at))

    def write(self, blocks: Sequence[Block]) -> int:
        for block in blocks:
            if cast("dict[str, object]", block.entries[""]).get(LARGE) == self.at.store:
                raise DoesNotFit("too large", key=block.id, where=str(self.at))
        self._send(blocks, [])
        return 0

    def delete(self, addresses: Sequence[Address]) -> None:
        self._send([], [address.id for address in addresses])

    def _send(self, put: Sequence[Block], gone: Sequence[Value]) -> None:
        world = self.world
        world.step("write")
        fate = world.fate("write")
        if fate in ("done", "lost"):
            self.carry_out(put, gone)
            world.hears("done", self, [*(block.id for block in put), *gone])
        elif fate in ("late", "killed"):
            world.later(self, put, gone)
        if fate == "killed":
            world.kill()
        if fate == "refused":
            raise Transient("not now", where=str(self.at))
        if fate in ("lost", "late"):
            raise Transient("no answer in time", where=str(self.at), unknown=True)
        world.step("written")

    # ------------------------------------------------------------------ its feed and its fence

    def journal(self, name: str) -> ServerJournal:
        return ServerJournal(self)

    def fence(self, name: str) -> ServerFence | None:
        return ServerFence(self) if self._fences else None


class ServerJournal:
    """The feed of a server; a position is its reign and an offset."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def prepare(self) -> Json:
        server = self._server
        server.world.step("prepare")
        if not server.attached:
            server.attached, server.begins = True, len(server.log)
            server.world.hears("attached", server, None)
        return [server.reign, server.begins]

    def open(self, position: Json) -> ServerFeed:
        self._server.world.step("open")
        feed = ServerFeed(self._server, position)
        assert not self._server.readers, "the feed before is still open"
        self._server.readers += 1
        return feed

    def mark(self, name: str) -> None:
        self._server.world.step("mark")
        self._server.log.append(Event(mark=name))
        self._server.world.hears("marked", self._server, name)
        self._server.world.step("marked")

    def drop(self) -> None:
        self._server.world.step("drop")
        if self._server.attached:
            self._server.lose_feed()

    def findings(self) -> Iterable[tuple[str, str, str]]:
        return ()

    def describe(self) -> str:
        return "the feed of a test"


class ServerFeed:
    """A feed being read."""

    def __init__(self, server: Server, position: Json) -> None:
        assert isinstance(position, list)
        self._server = server
        self._reign, self._at = position
        self._check()

    def _check(self) -> None:
        server = self._server
        if self._reign != server.reign or not server.attached or self._at < server.begins:
            raise FeedLost("the feed is another", where=str(server.at))

    def poll(self, seconds: float) -> Touches | None:
        server = self._server
        server.world.step("poll")
        self._check()
        if server.world.flip("poll"):
            raise Transient("the feed broke", where=str(server.at))
        events = server.log[self._at : self._at + 3]
        if events and server.world.is_late():
            events = []
        first = self._at - (server.world.repeats() if events else 0)
        server.world.hears("polled", server, self._at + len(events))
        if not events:
            server.world.wait(seconds)
            server.world.step("idle")
            return None
        self._at += len(events)
        events = server.log[max(first, server.begins) : self._at]
        return Touches(
            self._touches([event for event in events if event.key is not None]),
            [self._reign, self._at],
            any(event.whole for event in events),
            [event.mark for event in events if event.mark],
        )

    def _touches(self, events: Sequence[Event]) -> list[Touch]:
        """Each key once, as the feeds of all stores give it."""
        touches: dict[Value, Touch] = {}
        for event in events:
            before = touches.pop(event.key, Touch(event.key))
            writes = before.writes + self._server.counts
            touches[event.key] = Touch(event.key, before.deleted or event.deleted, writes)
        return list(touches.values())

    def acknowledge(self, position: Json) -> None:
        assert isinstance(position, list)
        self._server.world.step("acknowledge")
        if position[0] == self._server.reign:
            self._server.begins = max(self._server.begins, position[1])

    def close(self) -> None:
        self._server.readers -= 1


class ServerFence:
    """A durable denial of the applications' writes."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def raise_(self, mark: str, seconds: float) -> None:
        server = self._server
        server.world.step("fence")
        if server.world.flip("fence"):
            raise Transient("transactions did not end in time", where=str(server.at))
        server.fenced = True
        server.log.append(Event(mark=mark))
        server.world.hears("fenced", server, mark)
        server.world.step("fenced")

    def is_up(self) -> bool:
        return self._server.fenced

    def lower(self) -> None:
        self._server.world.step("lower")
        self._server.fenced = False
        self._server.world.step("lowered")
