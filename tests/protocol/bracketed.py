"""Schedules of a move whose keys change, under gateways of a store that shows its writes to nobody.

There a write's touch is what a gateway notes: it is shown once the bracket is closed, or was left
open for as long as its write may live; a marker comes behind the brackets that were open before it.
The mirror's own writes are in no feed. Where keys change, an application of the new side moves a
block by two writes, each with a bracket of its own.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from migrator.model.block import Block
from migrator.model.move import At
from migrator.model.value import Value
from migrator.ports import Json
from tests.protocol.lives import chances
from tests.protocol.rekeyed import CROSSED, KEYS, PLACES, RekeyedSchedule, RekeyedWorld
from tests.protocol.server import Event, Server, ServerJournal

REAPED = 0.3  # after how long an open bracket is taken for written
SIDES = (("source",), ("target",), ("source", "target"))


class BracketedServer(Server):
    """A side whose feed is what gateways note."""

    world: BracketedWorld
    reaps = True
    marks_wait = True

    def __init__(self, at: At, cls: str, world: BracketedWorld) -> None:
        super().__init__(at, cls, world, fences=False)
        self.noted: list[tuple[float, Event]] = []

    def put(self, key: str, entries: dict[str, Value]) -> bool:
        self.blocks[key] = entries
        self.leaves(Event(key))
        return True

    def remove(self, key: str) -> bool:
        self.blocks.pop(key, None)
        self.leaves(Event(key, deleted=True))
        return True

    def leaves(self, event: Event) -> None:
        """A bracket: its gateway closes it now or soon, or is killed and leaves it open."""
        draws = self.world.draws
        left = draws.chance(0.2)
        if left and not self.reaps:
            return
        due = REAPED if left else draws.choice((0.0, 0.01, 0.05))
        self.noted.append((self.world.now + due, event))
        self.show()

    def show(self) -> None:
        """What is due comes to be in the feed, in its order; in the end all of it."""
        at_rest = not (self.world.writes or self.world.faults)
        for note in sorted(self.noted, key=lambda note: note[0]):
            if at_rest or note[0] <= self.world.now:
                self.noted.remove(note)
                self.log.append(note[1])

    def carry_out(self, put: list[Block], gone: list[Value]) -> None:  # type: ignore[override]
        for block in put:
            self.blocks[str(block.id)] = dict(block.entries)
        for key in gone:
            self.blocks.pop(str(key), None)

    def journal(self, name: str) -> ServerJournal:
        return _Journal(self)


class _Journal(ServerJournal):
    _server: BracketedServer

    def mark(self, name: str) -> None:
        server = self._server
        server.world.step("mark")
        dues = [due for due, _ in server.noted] if server.marks_wait else []
        server.noted.append((max([server.world.now, *dues]), Event(mark=name)))
        server.show()
        server.world.step("marked")

    def prepare(self) -> Json:
        self._server.show()
        return super().prepare()


class BracketedWorld(RekeyedWorld):
    """An application whose writes go by gateways, on one side or on both."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for side in SIDES[self.seed % 3]:
            server = self.servers[side]
            self.servers[side] = BracketedServer(server.at, server.cls, self)

    def put(self, key: str, **how: object) -> None:
        super().put(key, **how)  # type: ignore[arg-type]
        server = self.servers[self.side]
        if isinstance(server, BracketedServer) and self.draws.chance(0.1):
            # Another gateway was killed before its write was sent.
            lies = key if self.side == "source" else self.places.get(key, PLACES[0])
            self.told.append(f"a bracket without a write, on {lies}")
            server.leaves(Event(lies, deleted=self.draws.chance(0.5)))

    def _land(self) -> None:
        super()._land()
        for server in self.servers.values():
            if isinstance(server, BracketedServer):
                server.show()


def bracketed(seed: int, patch: pytest.MonkeyPatch) -> RekeyedSchedule:
    """A schedule whose source holds some games. Gateways hold, no store denies; a store that shows
    nothing shows no truncation either, and nobody else's writes."""
    drawn = replace(chances(seed), strangers=False, truncate=False, lose=True, hook=True)
    world = BracketedWorld(seed, drawn)
    world.all_places = (PLACES, CROSSED)[seed // 3 % 2]
    schedule = RekeyedSchedule(world, patch, in_memory=True)
    for key in KEYS[: 1 + seed % len(KEYS)]:
        world.put(key)
    return schedule
