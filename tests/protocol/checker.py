"""A small explicit-state checker: every state of a machine, breadth first, so traces are shortest.

A machine is pure: named actions take one immutable state to the next, or are not enabled. Exploring
asks `choices` for the actions worth trying; replaying a recorded trace asks `step` alone, so both
go through the same guards.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Hashable, Iterable
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

S = TypeVar("S", bound=Hashable)


class Action(NamedTuple):
    """One step by name: what is done, to which key, with which arguments."""

    name: str
    key: Any = ()
    arguments: tuple[Any, ...] = ()

    def __str__(self) -> str:
        told = ", ".join(map(str, (self.key, *self.arguments))) if self.key != () else ""
        return f"{self.name}({told})"


class Machine(Generic[S]):
    """A model: `app.write` is carried out by the method `app_write`, and so on."""

    # Every action by name, and whether it is the world's: the world's need never happen.
    WORDS: ClassVar[dict[str, str]] = {}
    WORLD: ClassVar[frozenset[str]] = frozenset()
    # The switches of the rules that this model has.
    RULES: ClassVar[dict[str, str]] = {}

    def __init__(self, without: Iterable[str] = ()) -> None:
        self.without = frozenset(without)
        unknown = self.without - self.RULES.keys()
        if unknown:
            raise ValueError(f"{type(self).__name__} has no rule {sorted(unknown)}")
        self._does = {word: getattr(self, word.replace(".", "_")) for word in self.WORDS}

    def holds(self, rule: str) -> bool:
        return rule not in self.without

    def initial(self) -> S:
        raise NotImplementedError

    def choices(self, state: S) -> Iterable[Action]:
        """The actions worth trying; those that are not enabled cost time and nothing else."""
        raise NotImplementedError

    def step(self, state: S, action: Action) -> S | None:
        """The state after an action, or None where it is not enabled."""
        done: S | None = self._does[action.name](state, action.key, *action.arguments)
        return done

    def canonical(self, state: S) -> S:
        """One state for all that differ by names alone."""
        return state

    def broken(self, state: S) -> str | None:
        """What must never be and is, in any state."""
        return None

    def quiet(self, state: S) -> bool:
        """Whether everything that was begun has come to its end."""
        raise NotImplementedError

    def unequal(self, state: S) -> str | None:
        """What a quiet state lacks."""
        raise NotImplementedError


class Found(NamedTuple):
    """What an exploration showed; `broken` is None where all is well."""

    states: int
    quiet: int
    broken: str | None = None
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.broken is None:
            return f"{self.states} states, {self.quiet} of them quiet: nothing broken"
        lines = [f"{n:3}. {step}" for n, step in enumerate(self.trace, 1)]
        return "\n".join([f"{self.broken}, after", *lines])


def judge(machine: Machine[S], state: S) -> str | None:
    """What is wrong with a state."""
    wrong = machine.broken(state)
    if wrong is None and machine.quiet(state):
        wrong = machine.unequal(state)
    return wrong


def explore(machine: Machine[S], limit: int = 1_000_000) -> Found:
    """Look at every state; stop at the first that is broken, which lies on a shortest trace."""
    first = machine.canonical(machine.initial())
    number = {first: 0}
    came: list[tuple[int, Action | None]] = [(0, None)]
    todo = deque([first])
    quiet: list[int] = []
    sources, targets = array("l"), array("l")  # the edges that are not the world's
    while todo:
        state = todo.popleft()
        here = number[state]
        wrong = judge(machine, state)
        if wrong:
            return Found(len(number), len(quiet), wrong, _trace(came, here))
        if machine.quiet(state):
            quiet.append(here)
        for action in machine.choices(state):
            after = machine.step(state, action)
            if after is None:
                continue
            after = machine.canonical(after)
            there = number.setdefault(after, len(number))
            if there == len(came):
                came.append((here, action))
                todo.append(after)
            if action.name not in machine.WORLD:
                sources.append(here)
                targets.append(there)
        if len(number) > limit:
            raise RuntimeError(f"more than {limit} states: bound {type(machine).__name__} tighter")
    stuck = _first_stuck(len(number), quiet, sources, targets)
    if stuck is not None:
        wrong = "a dead end: without the world's help nothing becomes quiet again"
        return Found(len(number), len(quiet), wrong, _trace(came, stuck))
    return Found(len(number), len(quiet))


def _first_stuck(
    states: int, quiet: list[int], sources: array[int], targets: array[int]
) -> int | None:
    """The first state from which no quiet one can be reached."""
    before: list[list[int]] = [[] for _ in range(states)]
    for source, target in zip(sources, targets, strict=True):
        before[target].append(source)
    good = bytearray(states)
    for state in quiet:
        good[state] = 1
    todo = list(quiet)
    while todo:
        for source in before[todo.pop()]:
            if not good[source]:
                good[source] = 1
                todo.append(source)
    stuck = good.find(0)
    return None if stuck < 0 else stuck


def _trace(came: list[tuple[int, Action | None]], state: int) -> tuple[str, ...]:
    steps: list[str] = []
    while True:
        state, action = came[state]
        if action is None:
            return tuple(reversed(steps))
        steps.append(str(action))
