"""Schedules whose application now and then writes what the other side does not take.

Before a cut-over that lies in quarantine, and is left out by name: it stays on the source, until
the application writes its key again on the target. After one it lies in the ledger, and keeps a
rollback from being done, until the application has written it anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from migrator.model.phase import Phase
from tests.protocol.schedule import KEYS, Schedule, World, equal, reach
from tests.protocol.server import LARGE

LIKELY = 0.3


class UnfitWorld(World):
    """What lies on one side alone is judged, too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.left: dict[str, int] = {}  # what lies on the source alone
        self.unreturned: set[str] = set()  # what was last written on the target alone
        # What was left out and has gone from the target since, where it was written anew: without
        # a touch of that nobody can tell that it was there.
        self._before: dict[str, int] = {}
        self._untold = False

    # ------------------------------------------------------------------ the application

    def is_large(self) -> bool:
        return self.draws.chance(LIKELY)

    def put(self, key: str, *, large: bool = False, blindly: bool = False) -> None:
        super().put(key, large=large, blindly=blindly)
        if self.history.get(key) == self.version:
            self._lies(key, large=large)

    def _lies(self, key: str, *, large: bool) -> None:
        if self.side == "source":
            self._before.pop(key, None)
            self.left.pop(key, None)
            if large:
                self.left[key] = self.version
            return
        if key in self.left:
            self._before[key] = self.left.pop(key)
        self.unreturned.discard(key)
        if large:
            self.unreturned.add(key)

    def delete(self, key: str) -> None:
        if not self._follows() or self._is_left_out(key):
            return
        super().delete(key)
        if key not in self.history:
            self._gone(key)

    def _is_left_out(self, key: str) -> bool:
        """Whether nothing lies there where the application deletes."""
        return self.side == "target" and key in self.left

    def _gone(self, key: str) -> None:
        self.left.pop(key, None)
        self.unreturned.discard(key)
        if self.side == "source":
            self._before.pop(key, None)

    def truncate(self) -> None:
        before = dict(self.history)
        super().truncate()
        if not before or self.history:
            return
        if self.side == "target":
            self.history |= self.left
            self._untold = True
        for key in before.keys() - self.history.keys():
            self._gone(key)

    def mends(self) -> None:
        """What keeps a rollback from being done is written anew."""
        for key in sorted(self.unreturned):
            self.put(key)

    def _goes_wrong(self, where: str) -> None:
        target = self.servers["target"]
        before = target.reign
        super()._goes_wrong(where)
        self._untold |= target.reign != before

    # ------------------------------------------------------------------ judging

    def lacks(self, side: str) -> str:
        """What was left out is not on the target, and on the source what it was."""
        held, wanted = self.held(side), dict(self.history)
        if side == "target":
            wanted = {key: n for key, n in wanted.items() if key not in self.left}
        for key in self.unreturned if side == "source" else ():
            held.pop(key, None)
            wanted.pop(key, None)
        for key in self.resurrected():
            held.pop(key, None)
        if held == wanted:
            return ""
        return f"the {side} holds {held}, and must hold {wanted}"

    def resurrected(self) -> set[str]:
        """What was left out, written anew on the target and removed there, of which no feed has
        shown anything: it is on the source as it was, and goes over again after a rollback."""
        if not self._untold:
            return set()
        held, gone = self.held("source"), self._before.keys() - self.history.keys()
        return {key for key in gone if held.get(key) == self._before[key]}

    def differ(self) -> bool:
        return False  # what each side has to hold is known

    def unfit(self, side: str) -> set[str]:
        """What a side holds and the other one does not take."""
        blocks = self.servers[side].blocks.items()
        return named(key for key, entries in blocks if LARGE in cast("dict[str, Any]", entries[""]))


def named(keys: Iterable[str]) -> set[str]:
    """As quarantine and ledger show them."""
    return {f"Game:{key}" for key in keys}


def unfit_life(schedule: Schedule) -> None:
    """A move there, and perhaps back, which leaves out whatever does not fit."""
    world = cast("UnfitWorld", schedule.world)
    reach(schedule, Phase.BACKFILLED)
    schedule.compared()
    for phase in (Phase.CUT_OVER, Phase.SHADOW_READ)[: 1 + world.draws.below(2)]:
        schedule.go_on()
        schedule.accepts = sorted(named(KEYS)) if phase is Phase.CUT_OVER else []
        reach(schedule, phase)
    schedule.settle()
    equal(world)
    aside, ledger, unfit = set(schedule.aside()), set(schedule.ledger()), world.unfit("source")
    # What was left out, and written anew as it can't go back, is in the ledger instead.
    assert unfit - ledger <= aside <= unfit | named(world.resurrected()), world.told
    assert ledger == world.unfit("target"), world.told
