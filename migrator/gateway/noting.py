"""A bracket around a write, where the store itself shows none (R1, R8)."""

from __future__ import annotations

from contextvars import Context
from types import TracebackType

import structlog

from migrator.errors import MigratorError, Refused, Transient
from migrator.gateway.follower import Moved
from migrator.journal import Brackets
from migrator.model.value import Value
from migrator.ports import Json
from migrator.state.lease import boot_clock

log = structlog.get_logger("migrator.gateway")

MARGIN = 1.0
"""Seconds before the end of a bracket's life in which no write is sent any more."""


class Noting:
    """Opens a bracket, and closes it once it is known how the write ended.

    Where that is not known it stays open, and the owner takes the key for written in time.
    """

    def __init__(self, brackets: Brackets, id: Value, deleted: bool, run: str = "") -> None:
        self._brackets = brackets
        self._run = run
        self._id = id
        self._deleted = deleted
        self._bracket: Json = None
        self._until: float | None = None
        self._doubtful = False
        self._undone = False

    def undone(self) -> None:
        """Nothing was written, and so nothing was deleted."""
        self._undone = True

    def doubt(self) -> None:
        """A request of this write may live on: its bracket stays open."""
        self._doubtful = True

    def __enter__(self) -> None:
        self._until, self._doubtful, self._undone = None, False, False
        began = boot_clock()
        self._bracket = self._brackets.open(self._id, deleted=self._deleted)
        self._until = began + self._brackets.life - MARGIN
        try:
            self.check()
        except Moved:
            self._undone = True
            self._close()
            raise

    def check(self) -> None:
        """Raise Moved where the write may not be sent under this bracket any more."""
        if self._until is not None and boot_clock() >= self._until:
            raise Moved

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._until = None
        if isinstance(error, Refused):
            self._undone = True  # a conflict, or what this layout does not do: nothing was sent
        known = error is None or (isinstance(error, MigratorError) and not _unknown(error))
        if known and not self._doubtful:
            self._close()

    def _close(self) -> None:
        try:
            # Without what checks a write's sendings: this has to be sent, fence or not.
            Context().run(self._brackets.close, self._bracket, undone=self._undone)
        except MigratorError as problem:
            # The write is done, and its touch is there: an open one, which takes longer.
            error = str(problem).partition("\n")[0]
            log.warning("bracket not closed", run=self._run, error=error)


def _unknown(error: MigratorError) -> bool:
    return isinstance(error, Transient) and error.unknown
