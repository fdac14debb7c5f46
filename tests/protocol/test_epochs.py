"""The real engine where servers also hold the epoch, and lose answers about it (R15)."""

from __future__ import annotations

import pytest

from migrator.errors import Transient
from migrator.model.epoch import Epoch, from_text
from tests.protocol import schedule
from tests.protocol.schedule import Chances, whole_life
from tests.protocol.server import Server

SCHEDULES = 6


class ServerNotes:
    """The notes of all servers of one schedule; a change without an answer may be carried out
    later, from what is there then."""

    def __init__(self) -> None:
        self.texts: dict[str, str | None] = {}
        self.late: list[tuple[str, str | None, str | None]] = []
        self.changes = 0

    def land(self) -> None:
        """What is on its way is carried out."""
        for side, old, new in self.late:
            if self.texts.get(side) == old:
                self.texts[side] = new
        self.late = []

    @property
    def epochs(self) -> list[Epoch | None]:
        self.land()
        return [None if text is None else from_text(text) for text in self.texts.values()]


class ServerNote:
    """The note of one server, whose world draws what becomes of a request."""

    def __init__(self, notes: ServerNotes, server: Server) -> None:
        self._notes = notes
        self._server = server
        self._side = server.at.store

    def read(self) -> str | None:
        world = self._server.world
        world.step("note")
        if world.flip("note"):
            raise Transient("no answer to note", where=self._side)
        self._notes.land()
        return self._notes.texts.get(self._side)

    def change(self, old: str | None, new: str | None) -> bool:
        world, notes = self._server.world, self._notes
        world.step("note")
        if world.flip("land"):
            notes.land()
        notes.changes += 1
        fate = world.fate("note")
        if fate == "refused":
            raise Transient("not now", where=self._side)
        if fate in ("late", "killed"):
            notes.late.append((self._side, old, new))
        if fate == "killed":
            world.kill()
        done = fate in ("done", "lost") and notes.texts.get(self._side) == old
        if done:
            notes.texts[self._side] = new
            world.hears("noted", self._server, new)
        if fate in ("lost", "late"):
            raise Transient("no answer in time", where=self._side, unknown=True)
        world.step("noted")
        return done


def keeping(patch: pytest.MonkeyPatch) -> ServerNotes:
    """Have the servers of a schedule that is made then hold the epoch."""
    notes = ServerNotes()

    class Keeping(Server):
        """A class of its own: what a Server can do is remembered for all tests that follow."""

        def note(self, _: str) -> ServerNote:
            return ServerNote(notes, self)

    patch.setattr(schedule, "Server", Keeping)
    return notes


@pytest.mark.parametrize("seed", range(SCHEDULES))
def test_both_servers_hold_the_epoch_whatever_becomes_of_the_requests(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = keeping(monkeypatch)

    whole_life(seed, monkeypatch, Chances(fault=0.03))

    assert notes.changes > 10
    assert len(notes.texts) == 2
    (first, second) = notes.epochs
    assert first is not None
    assert second is not None
    assert (first.number, first.primary) == (second.number, second.primary)
    assert (first.number % 2 == 0) is (first.primary == "target")
