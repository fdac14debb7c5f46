"""Short lives by the thousand: drawn from seeds, and made small where one fails."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import pytest

from migrator.engine import batch
from migrator.model.phase import Phase
from tests.protocol.draws import Decisions, shrink
from tests.protocol.plants import Plant
from tests.protocol.schedule import Chances, Schedule, World, equal, filled, reach
from tests.protocol.unfit import UnfitWorld, unfit_life

EACH = 19  # of so many seeds the application of one writes what does not fit the mirror


def chances(seed: int) -> Chances:
    """Of a small world, so that one write seldom covers the loss of another."""
    return Chances(
        writes=12, write=0.05, faults=5, fault=0.012, life=0.5, strangers=seed % 5 == 0
    )  # fmt: skip


def short_life(schedule: Schedule) -> None:
    """A move there, and perhaps back: looked at once, when all is at rest."""
    reach(schedule, Phase.BACKFILLED)
    schedule.compared()
    for phase in (Phase.CUT_OVER, Phase.SHADOW_READ)[: 1 + schedule.world.draws.below(2)]:
        reach(schedule, phase)
    schedule.settle()
    equal(schedule.world)


class Lived(NamedTuple):
    """A schedule that was carried out: which decisions it made, its tale, and what was wrong."""

    decisions: Decisions
    tale: tuple[str, ...]
    steps: int
    wrong: BaseException | None


def lived(
    seed: int, given: Decisions | None = None, plant: Plant | None = None, *, in_memory: bool = True
) -> Lived:
    """One short life, with a fault planted in the engine or without."""
    with pytest.MonkeyPatch.context() as patch:
        if plant is not None:
            plant(patch)
        drawn, life = chances(seed), short_life
        kind: type[World] = World
        if seed % EACH == 7:
            drawn, kind, life = replace(drawn, strangers=False), UnfitWorld, unfit_life
            # As many events as a feed gives at once where there may be more: it is asked again.
            patch.setattr(batch, "_MANY", 1)
        schedule = filled(seed, patch, drawn, given, in_memory=in_memory, kind=kind)
        world, wrong = schedule.world, None
        try:
            life(schedule)
        except Exception as error:  # noqa: BLE001 - whatever it is, a schedule led there
            wrong = error
    return Lived(world.draws.made, tuple(world.told), world.steps, wrong)


def smallest(seed: int, found: Decisions, plant: Plant | None = None) -> Lived:
    """The smallest schedule that is wrong as the one found is."""
    kind = type(lived(seed, found, plant).wrong)

    def fails(given: Decisions) -> Decisions | None:
        life = lived(seed, given, plant)
        return life.decisions if isinstance(life.wrong, kind) else None

    return lived(seed, shrink(found, fails), plant)


def told(seed: int, first: Lived, small: Lived) -> str:
    """A failure, for who has to understand it."""
    return "\n".join(
        [
            f"seed {seed}: {len(small.decisions)} of {len(first.decisions)} decisions are enough:",
            str(small.wrong),
            f"decisions = {small.decisions}",
            f"the same again: MIGRATOR_SEED={seed} pytest tests/protocol/test_schedules.py",
        ]
    )
