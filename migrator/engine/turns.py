"""Work done in turns: a step of one piece and then one of another, in an order by chance."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Iterator


class Turns:
    """Pieces of work, each an iterator whose next step is done by whoever asks for it."""

    def __init__(self, pieces: Iterable[Iterator[None]]) -> None:
        self._waiting = list(pieces)
        self._lock = threading.Lock()

    def work(self) -> None:
        """Do steps until no piece waits; several threads may. A piece is in one hand at a time."""
        while (piece := self._take()) is not None:
            for _ in piece:
                with self._lock:
                    self._waiting.append(piece)
                break

    def _take(self) -> Iterator[None] | None:
        with self._lock:
            if not self._waiting:
                return None
            return self._waiting.pop(random.randrange(len(self._waiting)))  # noqa: S311
