"""What a verification found, and what its passes share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec

from migrator.engine import archived
from migrator.engine.checkpoints import Checkpoints
from migrator.engine.mending import Unlike
from migrator.engine.points import reached
from migrator.engine.work import Scene
from migrator.model.value import Value
from migrator.ports import Observer
from migrator.route import Route
from migrator.state import Task, quarantine_key

MOST_TOLD = 1_000
PATHS_TOLD = 20
# What a pass counts of its pages, and under which name it adds up the keys of the mirror.
_COUNTED = (
    "read", "equal", "differ", "missing", "extra", "quarantined", "archived", "parts", "rechecked",
)  # fmt: skip
KEYS = "keys"
MODULUS = 2**128


class Mismatched(msgspec.Struct, frozen=True, kw_only=True):
    """One key on which the sides differ: ``differs``, ``missing`` or ``extra`` in the mirror."""

    key: str
    what: str
    paths: list[str]


class Verification(msgspec.Struct, kw_only=True):
    """The result for one move. ``told`` is bounded; the counts are of all.

    ``read`` are the blocks of the source, which may be fewer or more than those of the mirror.
    ``archived`` are those that lie in the archive instead, ``parts`` those of which a part does.
    ``mended`` are those that differed, were reconciled by the mirror, and then no longer did.
    """

    cls: str
    source: str
    target: str
    read: int = 0
    equal: int = 0
    differ: int = 0
    missing: int = 0
    extra: int = 0
    quarantined: int = 0
    archived: int = 0
    parts: int = 0
    rechecked: int = 0
    told: list[Mismatched] = []
    mended: int = 0

    @property
    def unlike(self) -> int:
        """On how many keys the sides differ."""
        return self.differ + self.missing + self.extra

    @property
    def clean(self) -> bool:
        return not self.unlike


@dataclass
class Pass:
    """The readers of a verification, and what they found so far.

    ``odd``: a block was met that has to be decoded to be compared.
    """

    scene: Scene
    route: Route
    source: Observer
    target: Observer
    aside: frozenset[str]
    found: Verification
    checkpoints: Checkpoints
    archive: archived.Look | None = None
    odd: bool = False
    unlike: Unlike = field(default_factory=Unlike)

    def is_aside(self, id: Value) -> bool:
        """Whether a key of the source is in quarantine. The mirror of a live move takes keys out
        of it while they are compared."""
        if not self.aside or (key := quarantine_key(id)) not in self.aside:
            return False
        scene = self.scene
        if not scene.run.live:
            return True
        return scene.retry(scene.control.is_aside, scene.run.id, self.route.number, key)

    def tell(self, key: str, what: str, paths: list[str]) -> None:
        told = Mismatched(key=key, what=what, paths=paths[:PATHS_TOLD])
        if len(self.found.told) < MOST_TOLD:
            self.found.told.append(told)


def nothing() -> dict[str, int]:
    """The counts of a page that is still to be looked at."""
    return dict.fromkeys((*_COUNTED, KEYS), 0)


def checkpoint(walk: Pass, task: Task, position: object, done: dict[str, int]) -> Task:
    """Note that a task has come to a position, and what it found on the way."""
    counts = {name: task.counts.get(name, 0) + n for name, n in done.items()}
    counts[KEYS] = counts.get(KEYS, 0) % MODULUS
    task = replace(task, position=position, done=position is None, counts=counts)
    walk.checkpoints.keep(task)
    reached("verify.checkpointed")
    return task


__all__ = [
    "KEYS", "MODULUS", "MOST_TOLD", "PATHS_TOLD", "Mismatched", "Pass", "Verification",
    "checkpoint", "nothing",
]  # fmt: skip
