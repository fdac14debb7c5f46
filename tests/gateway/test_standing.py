"""What the rows of runs and leases tell a gateway, and an owner."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from migrator import commands
from migrator.errors import Refused
from migrator.model.phase import Phase
from migrator.state import Control
from migrator.state.gateways import (
    SHORT,
    GatewayLease,
    Gateways,
    Standing,
    alive,
    has_acknowledged,
    is_armed,
    knows,
)
from tests.gateway.kit import Owner
from tests.gateway.test_follower import Held, held, project

__all__ = ["held", "project"]


def test_writes_wait_from_the_fence_until_they_may_go_on_at_one_side(held: Held) -> None:
    owner = held.owner

    def may() -> bool:
        held.turn()
        return held.follows._may()

    assert may()
    owner.run = owner.live.arm(owner.run)
    assert may()
    owner.run = owner.live.raise_fence(owner.run)
    assert not may()
    owner.run = owner.live.undoing(owner.run)
    assert not may()  # a flip of it may still be carried out
    owner.run = owner.live.lowering(owner.run)
    assert may()
    owner.run = owner.live.release(owner.run)
    held.fence()
    owner.flip("target")
    assert not may()
    owner.run = owner.live.marked(owner.run)
    assert not may()
    owner.release()
    assert may()


def test_a_move_at_rest_stops_writes_while_it_copies() -> None:
    def stops(phase: Phase, epoch: int = 1) -> bool:
        return Standing("run", "0001", phase, epoch=epoch, live=False).at_rest

    assert [phase for phase in Phase if stops(phase)] == [
        Phase.PREPARED, Phase.DUAL_WRITE, Phase.BACKFILLED, Phase.SHADOW_READ
    ]  # fmt: skip
    assert not stops(Phase.SHADOW_READ, epoch=3)  # it was taken back
    assert not Standing(phase=Phase.PREPARED, live=False).at_rest


def test_where_a_class_stands_is_told_by_the_run_that_has_not_ended_else_by_the_last(
    held: Held, project: commands.Project
) -> None:
    control = project.control
    elsewhere = Gateways(Control(control.engine, "another"))
    assert elsewhere.standing("Game") == Standing()
    assert elsewhere.leases(["Game"]) == []
    assert held.gateways.leases(["Player"]) == []
    first = held.owner.run
    for name in ("b", "a"):
        held.owner.control.advance(control.run(first.id), Phase.ABORTED)
        later = control.start(name, "f", "", [("Game", "x", "y")])
        control.advance(later, Phase.ABORTED)
        assert held.gateways.standing("Game").revision == name
        owner = Owner(project, Phase.PREPARED)
        with control.transaction() as c:  # by a clock that was behind
            c.exec_driver_sql(f"UPDATE migrator_run SET started = 1.0 WHERE id = '{owner.run.id}'")
        assert held.gateways.standing("Game").run == owner.run.id
        first = owner.run


def test_a_fence_is_acknowledged_by_who_has_seen_it_and_no_other(held: Held) -> None:
    held.fence()
    seen, mine = held.gateways.standing("Game"), held.follows.instance
    held.gateways.enter("blind", "Game", 60.0)
    assert not held.gateways.acknowledge("blind", seen)
    held.gateways.leave(["blind"])
    held.follows._look()
    for other in (
        replace(seen, attempt=seen.attempt + 1), replace(seen, epoch=seen.epoch + 1),
        replace(seen, run="another"),
    ):  # fmt: skip
        assert not held.gateways.acknowledge(mine, other)
    assert held.gateways.acknowledge(mine, seen)
    assert has_acknowledged(held.owner.run)(held.row())
    held.owner.release()
    assert not held.gateways.acknowledge(mine, seen)
    held.fence()
    assert not has_acknowledged(held.owner.run)(held.row())


def test_what_an_owner_waits_for_is_of_its_run_its_phase_and_its_attempt(held: Held) -> None:
    run = replace(held.owner.run, phase=Phase.BACKFILLED, attempt=2)
    lease = GatewayLease(
        "i", "Game", "{}", 1, SHORT, run.id, Phase.BACKFILLED, 1, attempt=2, acknowledged=2
    )
    for waits_for in (knows(run), is_armed(run), has_acknowledged(run)):
        assert waits_for(lease)
        assert not waits_for(replace(lease, run="another"))
    assert not knows(run)(replace(lease, phase=Phase.DUAL_WRITE))
    assert knows(run)(replace(lease, phase=Phase.SHADOW_READ))
    assert not is_armed(run)(replace(lease, attempt=1))
    assert not is_armed(run)(replace(lease, seconds=SHORT + 0.1))
    assert not has_acknowledged(run)(replace(lease, acknowledged=1))


def test_a_lease_that_is_renewed_is_alive_and_one_that_runs_out_is_not(
    held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.gateways.leave([held.follows.instance])
    assert alive(held.gateways, ["Game"]) == []
    held.gateways.enter("still", "Game", 0.05, away=True)
    assert alive(held.gateways, ["Game"], pause=0.01) == []
    held.gateways.enter("busy", "Game", 60.0, away=True)
    held.gateways.renew_away("busy", 60.0)  # it may have died since
    sleeps = []

    def renews(seconds: float) -> None:
        sleeps.append(seconds)
        held.gateways.renew_away("busy", 60.0)

    clock = SimpleNamespace(sleep=renews)
    monkeypatch.setattr("migrator.state.gateways.time", clock)
    assert [each.instance for each in alive(held.gateways, ["Game"])] == ["busy"]
    assert len(sleeps) == 1


def test_a_run_that_somebody_else_moved_is_moved_by_nobody_who_did_not_see_it(held: Held) -> None:
    """All that tells who is the primary is compared (R13)."""
    run, live, control = held.owner.run, held.owner.live, held.owner.control
    for stale in (
        replace(run, phase=Phase.PLANNED), replace(run, primary="target"),
        replace(run, epoch=2), replace(run, attempt=1), replace(run, fence="armed"),
    ):  # fmt: skip
        with pytest.raises(Refused, match="moved by somebody else"):
            live.raise_fence(stale)
        with pytest.raises(Refused, match="somebody else moved it"):
            control.advance(stale, Phase.DUAL_WRITE)
    assert replace(control.run(run.id), changed=0.0) == replace(run, changed=0.0)
    moved = control.advance(run, Phase.DUAL_WRITE)
    assert moved.epoch == run.epoch
    assert control.advance(moved, Phase.SHADOW_READ, primary="target").epoch == run.epoch + 1
    held.owner.run = control.run(run.id)
