"""What was asked of the owner of a run: whether somebody still waits for it, and what is answered.

Requests and answers go through the control database. What nobody waits for any more is not begun.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import structlog

from migrator.engine.asker import Asker
from migrator.engine.swap import Swap
from migrator.engine.verify import Verification
from migrator.engine.work import Scene
from migrator.errors import MigratorError, Waiting
from migrator.state import LiveState, Request

log = structlog.get_logger("migrator.mirror")

_IDLE = 0.05


class Problem(msgspec.Struct, frozen=True):
    """An error, as it goes through the control database to who asked."""

    kind: str
    what: str
    where: str
    hint: str


class Answer(msgspec.Struct, frozen=True):
    """What became of a request."""

    verified: list[Verification] = []
    swap: Swap | None = None
    problem: Problem | None = None


class Requests:
    """The requests of one run. ``mine`` is the number of what its owner's own process asked for.
    ``gone`` is called where nobody waits for anything."""

    def __init__(
        self, scene: Scene, live: LiveState, mine: int | None, gone: Callable[[], None]
    ) -> None:
        self._scene = scene
        self._live = live
        self._asker = Asker(mine)
        self._gone = gone
        # What is being done now.
        self.current: Request | None = None
        # What was found and done for it, and goes into its answer.
        self.verified: list[Verification] = []
        self.swap: Swap | None = None

    def take(self, *, patient: bool = False) -> Request | None:
        """What was asked for and not answered yet, as long as somebody waits for that."""
        request, waits = self._heard(patient=patient)
        if request is None or waits is False:
            self._gone()  # who asks next wants to know how it is then
        if request is None or waits:
            return request
        if waits is False:
            log.warning("nobody waits for it any more", wanted=request.wanted)
            self.answer(request, self._nobody())
        return None

    def still_wanted(self, *, patient: bool = False) -> bool:
        """Whether somebody waits for what is about to be done; False where that can't be told yet.
        Raises Waiting where nobody does, or where something else was asked for since."""
        request = self.current
        if request is None or request.renewed is None:
            return True
        now, waits = self._heard(patient=patient)
        if now is None or now.number != request.number:
            raise Waiting(
                "it was taken back, or something else was asked for, before it was begun: nothing "
                "has changed",
                hint=f"see where it stands:  migrator status {self._scene.run.revision}",
            )
        if waits is False:
            raise self._nobody()
        return bool(waits)

    def _heard(self, *, patient: bool) -> tuple[Request | None, bool | None]:
        """What was asked for, and whether somebody waits for that. ``patient``: behind a turn that
        took long it is looked at until that is clear, since the next one may take as long."""
        request = self._live.asked()
        while (waits := self._asker.waits(request)) is None and patient and self._asker.was_away:
            self._scene.check()
            time.sleep(_IDLE)
            request = self._live.asked()
        return request, waits

    def _nobody(self) -> Waiting:
        return Waiting(
            "nobody was heard to wait for it any more: it was not begun",
            hint=f"ask again; see where it stands:  migrator status {self._scene.run.revision}",
        )

    def answer(self, request: Request, error: MigratorError | None = None) -> None:
        """Tell who asked what became of it."""
        answer, undone = Answer(verified=self.verified, swap=self.swap), None
        if error is not None:
            undone = {"wanted": request.wanted, "where": error.where, "why": error.what}
            told = Problem(
                kind=type(error).__name__, what=error.what, where=error.where, hint=error.hint
            )
            answer = Answer(problem=told)
        self.verified, self.swap = [], None
        self._live.answer(request.number, msgspec.to_builtins(answer), undone)

    def refuse(self, error: MigratorError) -> None:
        """Answer what was asked for, whoever waits for it: it must not be done later, when nobody
        looks."""
        if (request := self._live.asked()) is not None:
            self.answer(request, error)


__all__ = ["Answer", "Requests"]
