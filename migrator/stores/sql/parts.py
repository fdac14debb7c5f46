"""What a thread that reads a server's log hands to the feed's own, bounded in memory (R5)."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

MOST_WAITING = 20_000
PART = 5_000

Row = TypeVar("Row")
End = TypeVar("End")


@dataclass(slots=True)
class Part(Generic[Row, End]):
    """Rows that one transaction changed, or some of very many.

    ``end`` is the position behind the transaction, None where more of it follows. ``whole``:
    something without keys was written. ``committed`` is seconds since 1970 by the server's clock.
    """

    committed: float
    rows: list[Row] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    whole: bool = False
    end: End | None = None


Given = TypeVar("Given", bound="Part[Any, Any]")


class Parts(Generic[Given]):
    """A queue of parts. The reading thread asks for ``room`` before it reads on."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._parts: deque[Given] = deque()
        self._waiting = 0
        self._error: Exception | None = None
        self.closed = False

    def put(self, part: Given) -> None:
        """Hand a part over."""
        with self._condition:
            self._parts.append(part)
            self._waiting += len(part.rows)
            self._condition.notify_all()

    def room(self, seconds: float) -> bool:
        """Whether more may be put, or nobody takes any more; waits for it so long at most."""
        with self._condition:
            return self._condition.wait_for(
                lambda: self.closed or self._waiting < MOST_WAITING, seconds
            )

    @property
    def empty(self) -> bool:
        """Whether all that was put was taken."""
        return not self._parts

    def fail(self, error: Exception) -> None:
        """Nothing follows; ``take`` raises this when all is taken."""
        with self._condition:
            self._error = error
            self._condition.notify_all()

    def take(self, seconds: float, most: int) -> list[Given]:
        """Some parts in their order, none where none came in time."""
        with self._condition:
            self._condition.wait_for(lambda: self._parts or self._error, seconds)
            if not self._parts and self._error is not None:
                raise self._error
            taken: list[Given] = []
            rows = 0
            while self._parts and (not taken or rows + len(self._parts[0].rows) <= most):
                part = self._parts.popleft()
                rows += len(part.rows)
                taken.append(part)
            self._waiting -= rows
            self._condition.notify_all()
            return taken

    def close(self) -> None:
        """Nobody takes any more."""
        with self._condition:
            self.closed = True
            self._condition.notify_all()
