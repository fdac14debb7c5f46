"""The time line of a drill: its stages, what was killed, and how far the mirror was behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from migrator.drill.processes import Killable
from migrator.drill.report import Kill, Stage
from migrator.errors import MigratorError
from migrator.state import LiveState

_LOOK = 0.25


class TimeLine:
    """Moments are in seconds since ``began``, which is of the monotonic clock, as those of the
    writers' histories are. ``told`` hears of each stage as it begins."""

    def __init__(self, told: Callable[[str], None]) -> None:
        self._told = told
        self.began = time.monotonic()
        self.stages: list[Stage] = []
        self.kills: list[Kill] = []
        self.lag: list[tuple[float, float]] = []

    @contextmanager
    def stage(self, name: str) -> Iterator[Stage]:
        """Note the block as a stage."""
        self._told(name)
        stage = Stage(name=name, began=self.now(), ended=0.0)
        self.stages.append(stage)
        try:
            yield stage
        finally:
            stage.ended = self.now()

    def now(self) -> float:
        """Seconds since the drill began."""
        return round(time.monotonic() - self.began, 6)

    @contextmanager
    def killing(self, victim: Killable | None, after: float) -> Iterator[None]:
        """Kill a process while the block runs, or at its end, and start it again."""
        if victim is None:
            yield
            return
        errors: list[MigratorError] = []

        def kill() -> None:
            time.sleep(after)
            victim.kill()
            at = self.now()
            try:
                victim.start()
                victim.wait()
            except MigratorError as error:
                errors.append(error)
            again = self.now()
            self.kills.append(Kill(at=at, process=victim.name, again=again))

        thread = threading.Thread(target=kill, name="kill")
        thread.start()
        try:
            yield
        finally:
            thread.join()
        if errors:
            raise errors[0]

    @contextmanager
    def watching(self, live: LiveState) -> Iterator[None]:
        """Note, all the while, how far the mirror says that it is behind."""
        done = threading.Event()

        def watch() -> None:
            last = 0.0
            while not done.wait(_LOOK):
                with suppress(MigratorError):
                    at, told = live.told()
                    lag = told.get("lag")
                    if at != last and isinstance(lag, int | float):
                        self.lag.append((self.now(), float(lag)))
                    last = at

        thread = threading.Thread(target=watch, name="lag", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
