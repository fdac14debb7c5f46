"""Waiting until the mirror of a run holds what was written until now, from any process."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from migrator.engine.reading import journal_of
from migrator.errors import Interrupted, Waiting
from migrator.route import Route
from migrator.state import Control, LiveState

SETTLING = "settle "
# Seconds of silence after which who waits for a mirror takes it for gone.
GONE = 30.0
# Seconds after which a mark is made once more: twice as long each time.
_MARK_FIRST, _MARK_LAST = 0.5, 5.0


def settling() -> str:
    """A new marker for the feed of a primary: the mirror tells when it has met it."""
    return f"{SETTLING}{secrets.token_hex(8)}"


class Heard:
    """For how long a mirror has said nothing, by this process's own clock: the mirror's may be on
    another host, and either may jump (R14)."""

    def __init__(self, live: LiveState) -> None:
        self._live = live
        self._last: float | None = None
        self._since = self._worked = time.monotonic()
        self._waits = ""

    def look(self) -> tuple[float, dict[str, object]]:
        """The seconds, and what it said last."""
        at, state = self._live.told()
        if self._last not in (None, at):
            self._since = time.monotonic()
        self._last = at
        self._waits = str(state.get("waits", ""))
        if not self._waits:
            self._worked = time.monotonic()
        return time.monotonic() - self._since, state

    def waits(self, stores: Collection[str], seconds: float | None = None) -> str:
        """For which of some stores, by name, it has only waited for so long (half a minute), and
        why; empty for none: it looks at no request then."""
        long = time.monotonic() > self._worked + (GONE if seconds is None else seconds)
        return self._waits if long and self._waits.partition(":")[0] in stores else ""


class Standing(Protocol):
    """What of a run matters here: which it is, and which side was the primary when."""

    @property
    def revision(self) -> str: ...

    @property
    def primary(self) -> str: ...

    @property
    def epoch(self) -> int: ...


def settler(
    control: Control, id: str, run: Standing, routes: Sequence[Route], stop: threading.Event
) -> Callable[[], None]:
    """What waits until the mirror of a run holds all that was written until then.

    It raises Waiting where none is running, or where the sides were swapped meanwhile.
    """
    live = LiveState(control, id)

    def settle() -> None:
        heard = Heard(live)
        journals = {settling(): journal_of(route, run.primary, id) for route in routes}
        marks, due, pause = set(journals), 0.0, _MARK_FIRST
        while marks:
            if time.monotonic() >= due:
                # Once more: what a feed that was lost, or that nobody heard yet, had told of the
                # first is gone with it.
                for mark in marks:
                    journals[mark].mark(mark)
                due, pause = time.monotonic() + pause, min(pause * 2, _MARK_LAST)
            silent, state = heard.look()
            met = state.get("settled")
            marks.difference_update(met if isinstance(met, list) else ())
            if marks and silent > GONE:
                raise Waiting(
                    "no mirror is running, so the sides differ by what was written since",
                    hint=f"start it:  migrator mirror {run.revision}",
                )
            if marks and control.run(id).epoch != run.epoch:
                raise Waiting("the sides were swapped meanwhile", hint="compare them again")
            if marks and stop.wait(0.02):
                raise Interrupted("stopped; nothing was changed")

    return settle


__all__ = ["GONE", "SETTLING", "Heard", "settler", "settling"]
