"""How fast a run may copy, as somebody said while it went on."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from migrator.state import tables as t
from migrator.state.control import Control


@dataclass(frozen=True)
class Pace:
    """``rate``: blocks a second, None for as fast as it goes beside what applications write.
    ``paused``: none at all."""

    rate: float | None = None
    paused: bool = False


def read_pace(control: Control, run: str) -> Pace:
    """How fast a run may copy now."""
    with control.transaction() as c:
        return _pace(c, run)


def keep_pace(control: Control, run: str, event: str, **changes: float | bool | None) -> Pace:
    """Change how fast a run may copy, and note the event in its log."""
    with control.transaction() as c:
        # Only what changes: somebody else may set the other just now.
        t.keep(c, t.pace, {"run": run}, changes, {"paused": False})
        new = _pace(c, run)
    rate = changes.get("rate")
    control.record(run, event, **({} if rate is None else {"rate": rate}))
    return new


def _pace(c: sa.Connection, run: str) -> Pace:
    row = c.execute(sa.select(t.pace).where(t.pace.c.run == run)).first()
    return Pace() if row is None else Pace(row.rate, bool(row.paused))
