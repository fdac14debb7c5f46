"""How large a share of gateways' reads the mirror may answer, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import sqlalchemy as sa

from migrator.model.phase import Phase
from migrator.state import tables as t
from migrator.state.control import Control, Run
from migrator.state.merging import Rows

STALE = 10.0
"""Seconds by which an answer of the mirror may be older than the primary, where nobody said."""


class Stands(Protocol):
    """What of a run decides whether a share of its reads still counts."""

    @property
    def live(self) -> bool: ...

    @property
    def phase(self) -> Phase: ...

    @property
    def epoch(self) -> int: ...

    @property
    def attempt(self) -> int: ...

    @property
    def fence(self) -> str: ...


@dataclass(frozen=True)
class Share:
    """The share somebody asked for, and of which reign and which attempt to swap the sides.

    One that is over counts no more, so nobody has to take it back: an attempt is armed, and all
    gateways have seen that, before a fence is up.
    """

    share: float = 0.0
    stale: float = STALE
    epoch: int = 0
    attempt: int = 0

    def of(self, run: Stands) -> float:
        """How large it is as a run stands."""
        same = (self.epoch, self.attempt) == (run.epoch, run.attempt)
        return self.share if same and may_share(run) else 0.0


def may_share(run: Stands) -> bool:
    """Whether a mirror may answer reads at all, as a run stands."""
    return run.live and run.phase is Phase.SHADOW_READ and not run.fence


@dataclass(frozen=True)
class Answered:
    """What one process met of one class since the sides were last swapped: reads of the share by
    what became of each, and how long its last ones took, in seconds."""

    instance: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    latency: Mapping[str, float | None] = field(default_factory=dict)
    at: float = 0.0


class MirrorReads:
    """The part of the control database that tells of reads by a run's mirror."""

    def __init__(self, control: Control, run: str) -> None:
        self._control = control
        self._run = run

    def share(self) -> Share:
        """The share that was asked for last; ask it whether it still counts."""
        s = t.read_share.c
        query = sa.select(s.share, s.stale, s.epoch, s.attempt).where(s.run == self._run)
        with self._control.transaction() as c:
            row = c.execute(query).first()
        return Share() if row is None else Share(*row)

    def keep_share(self, run: Run, share: float, stale: float) -> None:
        """Say how large the share is from now on, for as long as the run stands as it does."""
        values = {"share": share, "stale": stale, "epoch": run.epoch, "attempt": run.attempt}
        with self._control.transaction() as c:
            t.keep(c, t.read_share, {"run": self._run}, values)
        self._control.record(self._run, "read share", share=share, stale=stale)

    def keep(self, move: int, epoch: int, found: Answered, *, there: bool = False) -> bool:
        """Keep all that a process met so far; once more is the same as once. False where that had
        to be ``there`` already, and is added to what others met (see ``Part``)."""
        of = {"run": self._run, "move": move, "epoch": epoch}
        with self._control.transaction() as c:
            return _ROWS.keep(c, of, found.instance, found, there=there)

    def found(self, epoch: int) -> list[Answered]:
        """What each process met since a swap, all classes, the last that wrote last."""
        r = t.mirror_reads.c
        query = sa.select(r.instance, r.found, r.at).where(r.run == self._run, r.epoch == epoch)
        with self._control.transaction() as c:
            rows = c.execute(query.order_by(r.at)).all()
        return [_answered(name, json.loads(text), at) for name, text, at in rows]


def all_answered(found: Sequence[Answered]) -> Answered:
    """What several processes met, together; latency is that of the last."""
    counts: dict[str, int] = {}
    for each in found:
        for name, count in each.counts.items():
            counts[name] = counts.get(name, 0) + count
    last = found[-1] if found else Answered()
    return Answered("", counts, last.latency, last.at)


def _answered(instance: str, found: Mapping[str, object], at: float) -> Answered:
    return Answered(
        instance, cast("dict[str, int]", found["counts"]),
        cast("dict[str, float | None]", found["latency"]), at,
    )  # fmt: skip


def _told(found: Answered) -> Mapping[str, object]:
    return {"counts": dict(found.counts), "latency": dict(found.latency)}


_ROWS = Rows(t.mirror_reads, _answered, _told, all_answered, lambda _: "gateways", ("gateways",))
