"""The checker itself, on a machine small enough to know all of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from tests.protocol.checker import Action, Machine, explore


class Counter(Machine[int]):
    """Counts up to a bound; at rest at its first number and at its last."""

    WORDS: ClassVar[dict[str, str]] = {"add": "one more, or two", "reset": "back to nothing"}
    WORLD: ClassVar[frozenset[str]] = frozenset({"reset"})
    RULES: ClassVar[dict[str, str]] = {"odd": "seven is allowed"}
    last = 9

    def initial(self) -> int:
        return 0

    def choices(self, state: int) -> Iterator[Action]:
        yield Action("add", 1)
        yield Action("add", 2)
        yield Action("reset")

    def add(self, state: int, more: int) -> int | None:
        after = state + more
        return None if after > self.last or (after == 7 and self.holds("odd")) else after

    def reset(self, state: int, _: object) -> int | None:
        return 0

    def quiet(self, state: int) -> bool:
        return state in (0, 9)

    def broken(self, state: int) -> str | None:
        return "seven" if state == 7 else None

    def unequal(self, state: int) -> str | None:
        return None


def test_every_state_is_seen_once() -> None:
    assert explore(Counter()) == (9, 2, None, ())


def test_what_is_broken_is_told_by_a_shortest_trace() -> None:
    found = explore(Counter(["odd"]))

    assert found.broken == "seven"
    assert len(found.trace) == 4
    assert str(found).startswith("seven, after\n  1. add(")


def test_a_state_that_only_the_world_leads_out_of_is_a_dead_end() -> None:
    class Short(Counter):
        last = 8

    found = explore(Short())

    assert found.broken is not None
    assert found.broken.startswith("a dead end")


def test_a_rule_that_a_machine_does_not_have_cannot_be_taken_away() -> None:
    with pytest.raises(ValueError, match="even"):
        Counter(["even"])


def test_a_world_too_large_is_refused() -> None:
    with pytest.raises(RuntimeError, match="bound Counter tighter"):
        explore(Counter(), limit=5)
