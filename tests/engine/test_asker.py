"""Whether somebody waits for what was asked of a mirror, by a clock of the test's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import sqlalchemy as sa

from migrator.commands.live import _Asked
from migrator.engine.asker import LEFT, Asker
from migrator.engine.swap import SwapTerms
from migrator.model.phase import Phase
from migrator.state import Control, LiveState, Request
from migrator.state.tables import metadata


class Owner:
    """An owner that looks at what was asked of it."""

    def __init__(self, mine: int | None = None) -> None:
        self.now = 1000.0
        self.asker = Asker(mine, lambda: self.now)

    def after(self, seconds: float, number: int, renewed: int | None = 0) -> bool | None:
        self.now += seconds
        request = Request(number, "cut_over", {}, renewed) if number else None
        return self.asker.waits(request)


def test_what_is_asked_while_an_owner_looks_is_wanted_until_it_is_not_renewed() -> None:
    owner = Owner()
    owner.after(0.0, 0)
    assert owner.after(1.0, 1)
    assert owner.after(LEFT - 2.0, 1)
    assert owner.after(1.0, 1, renewed=1)
    assert owner.after(LEFT - 1.5, 1, renewed=1)
    assert owner.after(2.0, 1, renewed=1) is False
    assert owner.after(1.0, 2)


def test_what_an_owner_finds_that_starts_is_wanted_once_it_is_renewed() -> None:
    owner = Owner()
    assert owner.after(0.0, 1, renewed=7) is None
    assert owner.after(0.5, 1, renewed=7) is None
    assert owner.after(0.5, 1, renewed=8)
    late = Owner()
    assert late.after(0.0, 1, renewed=7) is None
    assert late.after(LEFT - 0.1, 1, renewed=7) is None
    assert late.after(0.2, 1, renewed=7) is False


def test_what_was_renewed_while_an_owner_did_not_look_has_to_be_renewed_again() -> None:
    owner = Owner()
    owner.after(0.0, 0)
    assert owner.after(1.0, 1)
    assert owner.after(LEFT + 1.0, 1, renewed=1) is None
    assert owner.after(0.5, 1, renewed=2)


def test_what_nobody_has_to_renew_and_what_its_own_process_asks_is_wanted() -> None:
    owner = Owner(mine=2)
    assert owner.after(0.0, 1, renewed=None)
    assert owner.after(10 * LEFT, 1, renewed=None)
    assert owner.after(0.0, 2)
    assert owner.after(10 * LEFT, 2)


@pytest.mark.parametrize(
    ("phase", "wanted", "renews"),
    [
        (Phase.PLANNED, Phase.SHADOW_READ, False),
        (Phase.SHADOW_READ, Phase.CUT_OVER, True),
        (Phase.CUT_OVER, Phase.SHADOW_READ, True),
        (Phase.PREPARED, Phase.ABORTED, True),
        (Phase.CUT_OVER, Phase.FINISHED, True),
    ],
)
def test_who_asks_for_a_swap_or_an_end_has_to_wait_for_it_and_who_copies_need_not(
    phase: Phase, wanted: Phase, renews: bool
) -> None:
    engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)
    metadata.create_all(engine)
    control = Control(engine, "test")
    run = control.advance(control.start("0001", "", "", [("Game", "a", "b")], True), phase)
    _Asked(cast("Any", SimpleNamespace(control=control)), run, wanted, SwapTerms())
    request = LiveState(control, run.id).asked()
    assert request is not None
    assert (request.renewed is not None) == renews
