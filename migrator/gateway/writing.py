"""One write of an application: all that is sent for it, whatever moves the run meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from migrator.errors import MigratorError, Terminal, Transient
from migrator.gateway import changes
from migrator.gateway.follower import Moved
from migrator.gateway.noting import Noting
from migrator.gateway.opened import Opened, Sides
from migrator.gateway.sending import Sending, in_doubt
from migrator.model.block import name
from migrator.model.value import Value

T = TypeVar("T")


class Write:
    """One call that writes. What is sent later is told nothing of what was sent before, so it
    remembers all its sendings: one of unknown outcome makes the whole unknown (R6).

    ``once``: what may have been carried out is never sent again (R12). ``deleted``: it removes.
    """

    __slots__ = ("_deleted", "_sendings", "here", "id", "once")

    def __init__(
        self, here: Opened, id: Value, *, once: bool = False, deleted: bool = False
    ) -> None:
        self.here = here
        self.id = id
        self.once = once
        self._deleted = deleted
        self._sendings: list[Sending] = []

    @property
    def doubtful(self) -> bool:
        """Whether any of it may have been carried out, though nobody was told so."""
        return any(sending.doubtful for sending in self._sendings)

    def send(
        self,
        write: Callable[[Sides], T],
        *,
        suits: Callable[[Sides], bool] = lambda sides: True,
    ) -> T | None:
        """Send something to the primary, under a permit; begun anew where the run was moved. None,
        and nothing done, where what is the primary by then does not suit it."""
        if type(self.id) is not str:
            changes.refuse_odd(self.id, self.here.cls, "the identifier")
        late = 0.0
        try:
            return self._sent(write, suits)
        except MigratorError as error:
            # What the last sending was told says nothing of those before it.
            doubtful = self.doubtful
            if isinstance(error, Transient):
                error.unknown = error.unknown or doubtful
                doubtful = error.unknown
            late = self.here.follower.terms.request_life if doubtful else 0.0
            if doubtful and not isinstance(error, Transient):
                raise in_doubt(name(self.here.cls, self.id)) from error
            raise
        finally:
            self.here.mirrored.wrote(self.id, late)

    def _sent(self, write: Callable[[Sides], T], suits: Callable[[Sides], bool]) -> T | None:
        here, id = self.here, self.id
        follower = here.follower
        until = time.monotonic() + follower.terms.bound
        begun = False  # whether something of it may have been carried out
        while True:
            with follower.writing(until) as standing:
                sides = here.sides(standing)
                if begun and sides.elsewhere:
                    raise Transient(
                        "the sides were swapped while it was written, and their keys differ; it is "
                        "not known whether this was carried out",
                        where=name(here.cls, id), unknown=True,
                        hint=f"read it by the keys of the {sides.primary_side}",
                    )  # fmt: skip
                if not suits(sides):
                    return None  # before a bracket is opened, which others would wait for
                brackets = sides.brackets
                noting = None
                if brackets is not None:
                    noting = Noting(brackets, sides.key(id), self._deleted, standing.run)
                sending = Sending(follower, standing, noting, self.once, until - time.monotonic())
                self._sendings.append(sending)
                try:
                    return sending.send(write, sides)
                except Moved:
                    begun = begun or sending.sent
                    if time.monotonic() >= until:
                        raise Transient(
                            f"it was not written within {follower.terms.bound:g} s",
                            where=name(here.cls, id), unknown=True,
                            hint="see whether the store answers, and read before you try again",
                        ) from None  # fmt: skip
                except Terminal:
                    # A store's own fence refuses before this gateway has seen that it is up.
                    if not follower.look(standing):
                        raise
                    begun = begun or sending.doubtful
                if self.once and sending.doubtful:
                    raise in_doubt(name(here.cls, id))
