"""The decisions of a schedule: drawn from a seed, or given; and how many of them a failure needs.

A decision is a number, and 0 means that nothing out of the ordinary happens. So those that are not
0, by the step at which they were asked for, tell a schedule whole, and without one of them it is
calmer, and much the same at all other steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

Decisions = Mapping[int, int]
STEP = 256  # decisions of one step, at most


class Draws:
    """Answers what happens, and notes it."""

    def __init__(self, seed: int, given: Decisions | None = None) -> None:
        self._random = random.Random(seed).random
        self._given = given
        self.asked = 0  # the place of the next decision: the step's, and its own behind that
        self.made: dict[int, int] = {}

    def step(self) -> None:
        """What is asked for from here on belongs to another step."""
        self.asked = self.asked // STEP * STEP + STEP

    def chance(self, likely: float) -> bool:
        """Whether something happens."""
        at = self.asked
        self.asked = at + 1
        happens = self._random() < likely if self._given is None else at in self._given
        if happens:
            self.made[at] = 1
        return happens

    def below(self, count: int) -> int:
        """A number from 0, each as likely."""
        at = self.asked
        self.asked = at + 1
        if self._given is None:
            number = int(self._random() * count)
        else:
            number = min(self._given.get(at, 0), count - 1)
        if number:
            self.made[at] = number
        return number

    def choice(self, of: Sequence[T]) -> T:
        """One of these; the plainest stands first."""
        return of[self.below(len(of))]

    def uniform(self, low: float, high: float) -> float:
        """As the module ``random`` does, for a wait, which decides nothing."""
        return (low + high) / 2


Fails = Callable[[Decisions], Decisions | None]


def shrink(decisions: Decisions, fails: Fails, tries: int = 1000) -> Decisions:
    """The smallest schedule found that still fails; ``fails`` gives the decisions that a schedule
    really made, or None where all went well."""
    search = _Search(dict(decisions), fails, tries)
    before: Decisions | None = None
    while before != search.best and search.tries:
        before = search.best
        search.drop_chunks()
        search.lower()
        search.hasten()
        if before == search.best:
            search.drop_two()
    return search.best


class _Search:
    """The smallest schedule so far, and how many more may be tried."""

    def __init__(self, best: Decisions, fails: Fails, tries: int) -> None:
        self.best = best
        self.tries = tries
        self._fails = fails

    def _try(self, candidate: Decisions) -> bool:
        """Whether this one is smaller and fails, too: then it is the best."""
        if not self.tries or _size(candidate) >= _size(self.best):
            return False
        self.tries -= 1
        made = self._fails(candidate)
        if made is None or _size(made) >= _size(self.best):
            return False
        self.best = dict(made)
        return True

    def drop_chunks(self) -> None:
        """Without some decisions in a row, from the last ones on, and the large chunks first."""
        length = len(self.best)
        while length:
            first = len(self.best) - length
            while first > -length:
                places = sorted(self.best)
                gone = set(places[max(first, 0) : first + length])
                self._try({at: n for at, n in self.best.items() if at not in gone})
                first -= length
            length //= 2

    def drop_two(self) -> None:
        """Without two: one makes up for what the other no longer delays."""
        for second in sorted(self.best, reverse=True):
            for first in sorted(self.best):
                if first < second and {first, second} <= self.best.keys():
                    self._try({a: n for a, n in self.best.items() if a not in (first, second)})

    def lower(self) -> None:
        """Milder ones, decision by decision."""
        for at in sorted(self.best):
            for number in range(1, self.best.get(at, 0)):
                if self._try({**self.best, at: number}):
                    break

    def hasten(self) -> None:
        """All from one on some steps earlier, so that less happens in between."""
        for nth in range(len(self.best)):
            places = [-1, *sorted(self.best)]
            if nth + 1 >= len(places):
                return
            gap = places[nth + 1] // STEP - places[nth] // STEP
            while gap > 0:
                start, by = places[nth + 1], gap * STEP
                moved = {at - by if at >= start else at: n for at, n in self.best.items()}
                if len(moved) < len(self.best) or not self._try(moved):
                    gap //= 2
                    continue
                break


def _size(decisions: Decisions) -> tuple[int, int, int]:
    """Fewer decisions are better, then milder ones, then such as come early."""
    return len(decisions), sum(decisions.values()), sum(decisions)
