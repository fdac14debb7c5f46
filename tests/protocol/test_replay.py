"""Schedules of the real engine, replayed in the model: every step of it is one the model allows."""

from __future__ import annotations

import pytest

from tests.protocol import replay_swap
from tests.protocol.plants import PLANTS
from tests.protocol.replay import NotInTheModel, replayed
from tests.protocol.schedule import Chances

CHANCES = Chances(lose=False, truncate=False)  # those are re-scans, which the model does by pages


@pytest.mark.parametrize("seed", range(8))
def test_what_the_engine_does_is_what_the_model_allows(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = replayed(seed, monkeypatch, CHANCES)

    assert any(step.startswith("page.done") for step in recorder.told)
    assert any(step.startswith("owner.acknowledge") for step in recorder.told)


@pytest.mark.parametrize(
    ("rule", "refused"),
    [
        ("R2.lease", "owner.start"),
        ("R4.let_go", "owner.write"),
        ("R5.durable", "owner.acknowledge"),
        ("R6.let_go", "owner.settle"),
    ],
)
def test_the_model_refuses_an_engine_that_breaks_a_rule(rule: str, refused: str) -> None:
    def is_refused(seed: int) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            PLANTS[rule][0](patch)
            try:
                replayed(seed, patch, CHANCES)
            except NotInTheModel as error:
                return f"the model refuses {refused}(" in str(error)
        return False

    assert any(is_refused(seed) for seed in range(20))


# ---------------------------------------------------------------------- swaps of the sides


@pytest.mark.parametrize("seed", range(12))
def test_what_the_engine_does_in_a_swap_is_what_the_model_allows(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    swaps = replay_swap.replayed(seed, monkeypatch)

    assert swaps.told.count("cutover.flip(coordinator)") == 3
    assert swaps.told.count("cutover.release(coordinator)") == 3
    assert "gateway.answer(0)" in swaps.told


@pytest.mark.parametrize(
    ("rule", "refused"),
    [
        ("R16.held", "gateway.lease"),
        ("cutover.marker", "cutover.drained"),
        ("cutover.start", "cutover.release"),
    ],
)
def test_the_model_refuses_a_swap_that_breaks_a_rule(rule: str, refused: str) -> None:
    def is_refused(seed: int) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            PLANTS[rule][0](patch)
            try:
                replay_swap.replayed(seed, patch)
            except NotInTheModel as error:
                return f": {refused}(" in str(error).partition("\n")[0]
        return False

    assert any(is_refused(seed) for seed in range(20))
