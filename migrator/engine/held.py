"""Until when the mirror is known to hold all that was written, while gateways read it.

The lag tells how long touches took that were seen; what a feed has not shown yet it can't tell of.
A marker does: what was committed before it was written is in the mirror once it was met (R5).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from migrator.errors import Interrupted, MigratorError
from migrator.state import Run
from migrator.state.lease import boot_clock

if TYPE_CHECKING:
    from migrator.engine.lane import Lane

log = structlog.get_logger("migrator.mirror")

EVERY = 1.0
# A marker can go with a feed that was lost: then another one is written.
_PATIENCE = 10.0


@dataclass
class _Mark:
    """A marker on its way: written after ``at``, in the reign that ``epoch`` numbers."""

    name: str
    at: float
    epoch: int


class Held:
    """Writes a marker a second, and knows the last that all lanes have met. ``wanted`` says
    whether anybody asks for it: else nothing is written."""

    def __init__(
        self, wanted: Callable[[Run], bool], clock: Callable[[], float] = boot_clock
    ) -> None:
        self._wanted = wanted
        self._clock = clock
        self._by = secrets.token_hex(8)
        self._looked: float | None = None
        self._under_way: _Mark | None = None
        self._met: _Mark | None = None

    def turn(self, run: Run, lanes: Sequence[Lane]) -> None:
        """See whether the marker was met, and write the next one when it is time."""
        mark = self._under_way
        if mark is not None and _is_met(mark, run, lanes):
            # While keys are compared anew it proves nothing: a lost feed shows no touches.
            self._met = self._met if any(lane.scanning for lane in lanes) else mark
            self._under_way = mark = None
        now = self._clock()
        if self._looked is not None and now < self._looked + EVERY:
            return
        self._looked = now
        if not self._wanted(run):
            self._under_way = self._met = None
            return
        if mark is None or mark.epoch != run.epoch or now >= mark.at + _PATIENCE:
            self._under_way = self._write(run, lanes, now)

    def _write(self, run: Run, lanes: Sequence[Lane], now: float) -> _Mark | None:
        mark = _Mark(f"held {secrets.token_hex(8)}", now, run.epoch)
        try:
            for lane in lanes:
                lane.mark(run.primary, mark.name)
        except Interrupted:
            raise
        except MigratorError as error:  # what is mirrored goes on without it
            log.warning("no marker written", where=error.where, error=error.what)
            return None
        return mark

    def told(self) -> dict[str, object] | None:
        """In which reign all is held that was written until so many seconds ago, and who says so;
        ``said``: when, by its own clock. None where that is not known."""
        met, now = self._met, self._clock()
        if met is None:
            return None
        return {"by": self._by, "epoch": met.epoch, "age": now - met.at, "said": now}


def _is_met(mark: _Mark, run: Run, lanes: Sequence[Lane]) -> bool:
    return mark.epoch == run.epoch and all(lane.has_mark(run.primary, mark.name) for lane in lanes)


__all__ = ["Held"]
