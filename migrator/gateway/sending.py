"""How one write of a gateway is sent, and sent again (R6, R12)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from migrator.errors import Transient
from migrator.gateway.follower import Follower
from migrator.gateway.noting import Noting
from migrator.gateway.opened import Sides
from migrator.retry import Retry
from migrator.state.gateways import Standing

T = TypeVar("T")
_LEAST = 0.1


class Sending(Retry):
    """Sends a write for at most ``seconds``, and minds every request whose outcome is unknown,
    also where a store repeats it by itself: it may live on behind its repetition.

    ``noting`` is None where the store itself shows a write. ``once``: what may have been carried
    out is never sent again.
    """

    def __init__(
        self,
        follower: Follower,
        standing: Standing,
        noting: Noting | None,
        once: bool,
        seconds: float,
    ) -> None:
        super().__init__(max(_LEAST, seconds), check=self._may_send)
        self._follower = follower
        self._standing = standing
        self._noting = noting
        self._once = once
        self._doubtful = False
        self._writing = False  # whether a try has come to the write itself, behind its bracket
        self.sent = False

    @property
    def doubtful(self) -> bool:
        """Whether a request's outcome was unknown, though a later one may have been refused. Those
        of a bracket tell nothing of its write."""
        return self._doubtful

    def _may_send(self) -> None:
        self._follower.check_lease()
        if self._noting is not None:
            self._noting.check()

    def note(self, error: BaseException | None, wait: float = 0.0) -> None:
        if isinstance(error, Transient) and error.unknown:
            self._doubt()
        super().note(error, wait)

    def _doubt(self) -> None:
        self._doubtful = self._doubtful or self._writing
        self._follower.doubt()
        if self._noting is not None:
            self._noting.doubt()

    def send(self, write: Callable[[Sides], T], sides: Sides) -> T:
        """Carry a write out; what it gives is false where nothing was written. Raises Moved where
        it is to be begun anew."""
        return self(self._try, write, sides)

    def _try(self, write: Callable[[Sides], T], sides: Sides) -> T:
        lapses = self._follower.check(self._standing)
        self._writing = False
        try:
            if self._noting is None:
                self.sent = self._writing = True
                done = write(sides)
            else:
                with self._noting:
                    self.sent = self._writing = True
                    done = write(sides)
                    if not done:
                        self._noting.undone()
        except Transient as error:
            if error.unknown:
                self._doubt()
            error.given_up = error.given_up or (self._once and self._doubtful)
            raise
        if self._once and self._doubtful and done is None:
            lost = in_doubt(str(sides.primary.at))
            lost.given_up = True
            raise lost
        self._follower.assure(self._standing, lapses, str(sides.primary.at))
        return done


def in_doubt(where: str) -> Transient:
    """What to raise where nothing tells whether an earlier sending was carried out."""
    return Transient(
        "it is not known whether this was carried out", where=where, unknown=True,
        hint="read the aggregate, and see whether it is there",
    )  # fmt: skip
