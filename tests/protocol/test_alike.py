"""The real engine where the mirror takes keys for one, in schedules drawn from seeds (R3)."""

from __future__ import annotations

import os

import pytest

from migrator.journal import Touch
from migrator.model.phase import Phase
from tests.protocol.alike import filled, life
from tests.protocol.schedule import reach

SCHEDULES = int(os.environ.get("MIGRATOR_SCHEDULES", "200")) // 8


@pytest.mark.parametrize("loose", [True, False], ids=["loose", "strict"])
@pytest.mark.parametrize("kind", range(4), ids=["kept", "rekeyed", "spread", "gathered"])
@pytest.mark.parametrize("side", ["target", "source"])
def test_keys_that_the_mirror_takes_for_one_lose_no_write(
    side: str, kind: int, loose: bool
) -> None:
    for seed in range(SCHEDULES):
        with pytest.MonkeyPatch.context() as patch:
            life(filled(seed, patch, side, kind, loose=loose), side)


def test_a_block_that_is_found_under_another_key_has_a_turn_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = filled(1, monkeypatch, "source", 0, loose=True, both=True)
    world = schedule.world
    world.writes = world.faults = 0
    reach(schedule, Phase.BACKFILLED)
    schedule.compared()
    reach(schedule, Phase.CUT_OVER)
    source, target = world.servers["source"], world.servers["target"]
    # The target finds 11 under 10; the source can't tell 11 from 21.
    monkeypatch.setattr(source, "number", lambda key: int(str(key)) % 10)
    target.blocks |= {key: {"": {"n": int(key)}} for key in ("11", "21")}
    (lane,) = schedule._process().lanes

    lane.reconciler.touched("target", [Touch("10", deleted=True), Touch("21")])

    assert list(source.blocks) == ["21"]
    assert schedule.ledger() == ["Game:11"]
