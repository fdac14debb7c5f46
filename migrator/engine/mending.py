"""Keys that a comparison found to differ, handed to the owner, who alone writes the mirror (R2).

They stand in the control database as tasks of the move, each some keys of one side, and the owner
reconciles them as touches: both sides are read anew, so that a write that came meanwhile is no
older than what it leaves there (R4). A crash leaves them to the next owner. Of more than can be
named, or of keys that have no form as text, nothing is kept: all keys of both sides are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from migrator.engine.points import reached
from migrator.model.canonical import encode
from migrator.model.json_text import UNFIT, from_text, load, to_text
from migrator.model.value import Value
from migrator.ports import Json
from migrator.state import Control, Task

if TYPE_CHECKING:
    from migrator.engine.lane import Lane
    from migrator.engine.work import Scene

WORK = "mend"
# Keys of a move that are named, all in all, and those of one task.
MOST = 10_000
AT_ONCE = 100
# Seconds between two looks of the owner.
_EVERY = 0.5


@dataclass
class Unlike:
    """The keys of one move on which a comparison found the sides to differ.

    ``found`` are those that it compared, by side; ``keys`` all that have to be reconciled for
    them. ``whole``: there are more than can be named.
    """

    found: dict[str, list[Value]] = field(default_factory=lambda: {"source": [], "target": []})
    keys: dict[str, dict[bytes, Value]] = field(
        default_factory=lambda: {"source": {}, "target": {}}
    )
    whole: bool = False

    def add(self, side: str, found: Value, keys: Iterable[tuple[str, Value]]) -> None:
        """A key that differs as it was compared on a side, and those to be reconciled for it."""
        if self.whole:
            return
        self.found[side].append(found)
        for at, key in keys:
            self.keys[at][encode(key)] = key
        if sum(map(len, self.keys.values())) > MOST:
            self.forget()

    def forget(self) -> None:
        """There are too many, or some that nobody can tell."""
        self.whole = True
        for many in self.keys.values():
            many.clear()
        for some in self.found.values():
            some.clear()

    def ranges(self) -> list[Json]:
        """What the owner is to do, piece by piece."""
        try:
            texts = {side: [to_text(key) for key in keys.values()]
                     for side, keys in self.keys.items()}  # fmt: skip
        except UNFIT:
            self.forget()
        if self.whole:
            return [None]
        return [
            {"side": side, "keys": list(some[start : start + AT_ONCE])}
            for side, some in texts.items()
            for start in range(0, len(some), AT_ONCE)
        ]


def left(control: Control, run: str, moves: int) -> Iterator[tuple[int, Task]]:
    """What the owner of a run has still to reconcile of what was handed to it, with the number of
    the move, of so many."""
    for move in range(moves):
        for task in control.tasks(run, move, WORK):
            if not task.done:
                yield move, task


def count(task: Task) -> int:
    """How many keys a task names; 0 for all there are."""
    return len(_keys(task)) if isinstance(task.range, dict) else 0


def _keys(task: Task) -> Sequence[str]:
    named = task.range["keys"] if isinstance(task.range, dict) else []
    return [str(key) for key in named] if isinstance(named, list) else []


class Mending:
    """The owner's part: one task at a time, between two batches of touches."""

    def __init__(self, scene: Scene, lanes: Sequence[Lane]) -> None:
        self._scene = scene
        self._lanes = {lane.route.number: lane for lane in lanes}
        self._looked = float("-inf")

    def turn(self, now: float) -> None:
        """Look, where that was not done just now, and carry out one task; ``now`` in seconds."""
        if now < self._looked + _EVERY:
            return
        scene, retry = self._scene, self._scene.retry
        found = retry(lambda: next(left(scene.control, scene.run.id, len(scene.routes)), None))
        if found is None:
            self._looked = now
            return
        number, task = found
        self._carry_out(self._lanes[number], task)
        retry(scene.control.checkpoint, scene.run.id, replace(task, done=True))
        reached("mend.checkpointed")

    def _carry_out(self, lane: Lane, task: Task) -> None:
        if not isinstance(task.range, dict):
            lane.scan()
            return
        keys = [from_text(text, load) for text in _keys(task)]
        lane.mend(self._scene.run.primary, keys, str(task.range["side"]))


__all__ = ["MOST", "WORK", "Mending", "Unlike", "count", "left"]
