"""Whether somebody waits for what was asked of a mirror, by a clock of the test's own."""

from __future__ import annotations

from migrator.engine.asker import LEFT, Asker
from migrator.state import Request


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
