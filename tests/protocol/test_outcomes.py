"""Requests of unknown outcome, when the process that sent them ends in good order."""

from __future__ import annotations

import pytest

from tests.protocol.plants import ends_equal
from tests.protocol.schedule import level


@pytest.mark.xfail(strict=True, reason="who ends in good order leaves no lease to be outwaited")
def test_a_request_on_its_way_is_outwaited_after_an_end_in_good_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedule = level(monkeypatch)
    world = schedule.world

    def stopped() -> None:
        world.put("0")
        world.stopping = True

    world.put("0")
    world.fates.append("late")
    world.script["mirror.write"] = stopped

    ends_equal(schedule)
