"""Gateways that ended without leaving: whoever owns the run outwaits the last of their requests."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlalchemy as sa

from migrator.engine import holders
from migrator.engine.holders import Holders
from migrator.engine.stilled import stilled
from migrator.errors import Interrupted, Waiting
from migrator.model.phase import Phase
from migrator.state import Control, gateways
from migrator.state.gateways import SHORT, Gateways, Standing, gateway
from migrator.state.tables import metadata

LIFE = 10.0


class _Bracketed:
    def brackets(self, name: str) -> None:
        """Gateways leave the touches here."""


class Killed:
    """A move of games, in the middle of whose last write a gateway was killed; and a clock."""

    def __init__(self) -> None:
        engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)
        metadata.create_all(engine)
        self.control, self.now = Control(engine, "test"), 100.0
        self.sleep: Callable[[float], None] = self.passes
        self.told: list[str] = []  # that the owner waits for
        self.run = self.control.start("0001", "", "", [("Game", "a", "b")])
        self.dies()

    def passes(self, seconds: float) -> None:
        self.now += seconds

    def dies(self) -> None:
        """A gateway that nobody has known of until now."""
        Gateways(self.control).enter(str(self.now), "Game", 15.0)
        with self.control.transaction() as c:
            c.execute(gateway.update().values(holder=json.dumps({"left": True})))

    def scene(self, check: Callable[[], None] = lambda: None) -> Any:
        route = SimpleNamespace(cls="Game", move=SimpleNamespace(source_cls="Game", merges=None))
        return SimpleNamespace(
            control=self.control, routes=[route], plan=SimpleNamespace(revision="0001"),
            run=self.run, check=check, request_life=LIFE,
        )  # fmt: skip

    def owner(self) -> Holders:
        """As a process that has just become the owner sees them."""
        lane = SimpleNamespace(side=lambda _: _Bracketed())
        owner = SimpleNamespace(
            scene=self.scene(), run=self.run, lanes=[lane], request_life=LIFE,
            telling=SimpleNamespace(tell=lambda: self.told.append(made.waits)),
        )  # fmt: skip
        made = Holders(cast("Any", owner))
        return made


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Killed:
    made = Killed()
    clock = SimpleNamespace(monotonic=lambda: made.now, sleep=lambda pause: made.sleep(pause))
    monkeypatch.setattr(holders, "time", clock)
    monkeypatch.setattr(gateways, "time", clock)
    return made


def test_a_copy_begins_after_the_last_request_of_a_killed_gateway_whichever_owner_waits(
    killed: Killed,
) -> None:
    first = killed.owner()
    assert not first.know()
    killed.now += LIFE - 1
    assert not first.know()
    second = killed.owner()  # the first was stopped in good order
    assert not second.know()
    killed.now += 1
    killed.dies()
    assert not second.know()
    killed.now += LIFE - 1
    assert not second.know()
    (lease, last) = sorted(
        Gateways(killed.control).leases(["Game"]), key=lambda each: each.instance
    )
    assert (
        second.waits
        == f"the last requests of 2 gateways ({lease.instance}, {last.instance}), 1 s more at most"
    )
    killed.now += 1
    assert second.know()
    assert not second.waits


def test_a_copy_outwaits_a_killed_gateway_whose_lease_another_runs_owner_has_removed(
    killed: Killed,
) -> None:
    owner, gateways = killed.owner(), Gateways(killed.control)
    assert not owner.know()
    gateways.leave(lease.instance for lease in gateways.leases(["Game"]))
    killed.now += LIFE - 1
    assert not owner.know()
    killed.now += 1
    assert owner.know()


def test_a_move_at_rest_that_is_stopped_while_it_outwaits_a_gateway_waits_anew(
    killed: Killed,
) -> None:
    looks = iter(range(2))

    def check() -> None:
        if next(looks):
            raise Interrupted("stopped")

    with pytest.raises(Interrupted), stilled(killed.scene(check)):
        pytest.fail("what a killed gateway had sent was not outwaited")
    assert Gateways(killed.control).leases(["Game"])


def test_a_swap_outwaits_a_killed_gateway_unless_a_store_denies_what_it_had_sent(
    killed: Killed,
) -> None:
    gateways, began = Gateways(killed.control), killed.now
    killed.owner().arm(Phase.CUT_OVER, denied=True)
    assert (killed.now, gateways.leases(["Game"])) == (began, [])
    killed.dies()
    with pytest.raises(Waiting, match="ended without leaving"):
        killed.owner().hold(killed.now, denied=False)
    # Asked again at once, and of another owner.
    killed.owner().arm(Phase.CUT_OVER, denied=False)
    assert killed.now >= began + LIFE
    assert not gateways.leases(["Game"])
    told = list(filter(None, killed.told))
    last = f"the last requests of gateway {began},"
    assert (told[0], told[-1]) == (f"{last} 10 s more at most", f"{last} 1 s more at most")


def test_of_a_swap_is_told_which_gateway_it_waits_for_and_for_how_long(killed: Killed) -> None:
    gateways, owner = Gateways(killed.control), killed.owner()
    gateways.leave(lease.instance for lease in gateways.leases(["Game"]))
    gateways.enter("slow", "Game", 15.0)

    def tell() -> None:
        killed.told.append(owner.waits)
        killed.now += 10.0
        if len(killed.told) == 3:
            gateways.leave(["slow"])

    owner._mirror.telling.tell = tell  # type: ignore[method-assign, assignment]
    owner.arm(Phase.CUT_OVER, denied=True)
    told = "gateway slow to see that the sides are to be swapped"
    assert killed.told == ["", f"{told}, 30 s more at most", f"{told}, 20 s more at most"]
    assert not owner.waits


def test_a_swap_waits_for_a_gateway_that_comes_back_while_its_last_request_is_outwaited(
    killed: Killed,
) -> None:
    gateways, owner = Gateways(killed.control), killed.owner()
    (lease,) = gateways.leases(["Game"])
    armed = Standing(killed.run.id, attempt=killed.run.attempt)

    def sleep(seconds: float) -> None:
        killed.now += LIFE
        gateways.renew(lease.instance, SHORT)
        gateways.saw(lease.instance, armed)

    killed.sleep = sleep
    with pytest.raises(Waiting, match="can't follow"):  # it is asked whether it can: it counts
        owner.arm(Phase.CUT_OVER, denied=False)
    assert [each.instance for each in gateways.leases(["Game"])] == [lease.instance]
