"""Programs that write beside a test, each over its own session, and what was acknowledged."""

from __future__ import annotations

import random
import threading
import time

from migrator.testing.feeds.harness import PATIENCE, Followable

KEYS = [f"game-{i}" for i in range(8)]


class Writers:
    """They write for as long as the block lasts, or until they are stopped or refused.

    Keys are a few for all, or with ``fresh_keys`` each is written once. ``refused`` are the
    errors that ended some.
    """

    def __init__(self, here: Followable, count: int, *, fresh_keys: bool = False) -> None:
        self.refused: list[Exception] = []
        self._stopped = threading.Event()
        self._here = here
        self._fresh = fresh_keys
        self._acknowledged: list[str] = []
        self._threads = [threading.Thread(target=self._run, args=[i]) for i in range(count)]

    def _run(self, number: int) -> None:
        app = self._here.another()
        chosen = random.Random(number)  # noqa: S311 - no secret
        turn = 0
        try:
            while not self._stopped.is_set():
                turn += 1
                key = f"new-{number}-{turn}" if self._fresh else chosen.choice(KEYS)
                if self._fresh or chosen.random() < 0.8:
                    app.put(key, turn * 10 + number)
                else:
                    app.delete(key)
                self._acknowledged.append(key)
        except Exception as error:  # noqa: BLE001 - whatever the driver says to a refused write
            self.refused.append(error)
        finally:
            app.close()

    def so_far(self) -> list[str]:
        """The keys of the writes acknowledged until now."""
        return list(self._acknowledged)

    def reach(self, count: int) -> None:
        """Wait until so many writes were acknowledged."""
        end = time.monotonic() + PATIENCE
        while len(self._acknowledged) < count:
            assert time.monotonic() < end, f"only {len(self._acknowledged)} writes in {PATIENCE} s"
            time.sleep(0.01)

    def stop(self) -> list[str]:
        """End all; the keys of all writes acknowledged. Fails where one was refused."""
        self._stopped.set()
        self.join()
        assert not self.refused, self.refused[0]
        return self._acknowledged

    def join(self) -> None:
        """Wait until all have ended."""
        for thread in self._threads:
            thread.join(timeout=PATIENCE)
            assert not thread.is_alive(), "a writer did not end"

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()
