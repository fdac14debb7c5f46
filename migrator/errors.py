"""Every error a person may read: what failed, where, and what to do next.

The exit code belongs to the class, so that a pipeline can tell a refusal from a failure
without reading the text. Nothing here may hold a secret: messages reach logs and plans.
"""

from __future__ import annotations

from typing import ClassVar


class MigratorError(Exception):
    """The root of all errors that are shown as one line instead of a traceback."""

    exit_code: ClassVar[int] = 1
    word: ClassVar[str] = "failed"

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.head}\n{self.hint}" if self.hint else self.head

    @property
    def head(self) -> str:
        """Where and what, without what to do."""
        return f"{self.where}: {self.what}" if self.where else self.what


class Failed(MigratorError):
    """Something did not work; trying the same again does not help by itself."""


class Terminal(Failed):
    """A store said no for good: repeating the request would fail in the same way."""


class DoesNotFit(Terminal):
    """One value, entry or block can't be held by the target; others may well be."""

    def __init__(
        self, what: str, *, key: object = None, path: str = "", where: str = "", hint: str = ""
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.key = key
        self.path = path


class DamagedBlock(Terminal):
    """What lies under one key can't be read as a block; others may well be."""


class Transient(Failed):
    """A store may say yes to the same request later (lost connection, throttle, lock).

    ``unknown`` is true where the request may have been carried out all the same (R6), ``stale``
    where it has to be another one, so that the call it is part of begins anew, and ``given_up``
    once it was repeated for as long as that is done.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str = "",
        hint: str = "",
        unknown: bool = False,
        stale: bool = False,
    ) -> None:
        super().__init__(what, where=where, hint=hint)
        self.unknown = unknown
        self.stale = stale
        self.given_up = False


class FeedLost(Failed):
    """What a feed held behind a position is gone: only a re-scan of both sides goes on (R5)."""


class Refused(MigratorError):
    """Migrator won't do it: a stale plan, a lock held by another, a finding not accepted."""

    exit_code = 3
    word = "refused"


class Mismatch(MigratorError):
    """Both sides were compared and differ."""

    exit_code = 4
    word = "mismatch"


class Waiting(MigratorError):
    """The run stands at a gate that is not open yet."""

    exit_code = 5
    word = "waiting"


class Usage(MigratorError):
    """The command was called with words it does not know."""

    exit_code = 64
    word = "usage"


class Interrupted(MigratorError):
    """A person or the system stopped the run; it goes on from its checkpoints."""

    exit_code = 130
    word = "stopped"
