"""What a drill rehearses: how much traffic of which kind, and what is killed on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from migrator import commands
from migrator.drill.history import Act
from migrator.drill.replay import Recording

SECONDS = 5.0
STAGES = 5
"""So many times there is traffic between two steps, and so many seconds each by default."""
# What is killed in which stage, in the order of what it is worth.
KILLS = (
    ("roll back", "mirror"),
    ("shadow read", "writer"),
    ("copy", "mirror"),
    ("source is primary", "writer"),
    ("target is primary", "mirror"),
)
MIX = {Act.PUT: 2.0, Act.UPDATE: 3.0, Act.APPEND: 3.0, Act.DELETE: 1.0, Act.GET: 3.0}


@dataclass(frozen=True)
class DrillTerms:
    """What is rehearsed. ``rate``: calls a second of all writers; ``keys``: of each writer;
    ``seconds``: of traffic between two steps; ``minimum``: calls of each kind that have to be
    acknowledged; ``kills``: how many of KILLS; ``lease``: of a gateway in quiet phases, in seconds.

    Where ``replay`` is a recording, its calls are made at ``speed`` times the rate of then, in the
    place of ``rate``, ``keys``, ``mix`` and ``skew``; without ``seconds`` it is replayed once.
    """

    writers: int = 2
    rate: float = 50.0
    keys: int = 20
    mix: Mapping[Act, float] = field(default_factory=lambda: dict(MIX))
    skew: float = 1.0
    seconds: float | None = None
    minimum: int = 20
    seed: int | None = None
    kills: int = len(KILLS)
    finish: bool = False
    lease: float = 5.0
    apply: commands.Terms = field(default_factory=commands.Terms)
    replay: Recording | None = None
    speed: float = 1.0

    @property
    def between(self) -> float:
        """The seconds of traffic between two steps."""
        if self.seconds is not None:
            return self.seconds
        whole = 0.0 if self.replay is None else self.replay.seconds / self.speed
        return max(SECONDS, whole / STAGES)

    def wanted(self, lists: bool) -> dict[Act, int]:
        """How many calls of each kind have to be acknowledged; ``lists``: whether something lies
        there that appends could be made for."""
        mix: Mapping[Act, float] = self.mix if self.replay is None else self.replay.acts
        least = {act: self.minimum for act, part in mix.items() if part > 0}
        if not lists and least.pop(Act.APPEND, 0) and self.replay is not None:
            least[Act.APPEND] = 0
        if self.replay is not None:
            least.setdefault(Act.PUT, 0)  # what was there before is put first
        return {act: least[act] for act in Act if act in least}
