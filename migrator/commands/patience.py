"""How long a swap, or a finish, that was asked for waits for a store before it begins.

A mirror waits for a store for as long as that does not answer, and so would who asked for one.
What copies or compares on the way there goes on by itself, whenever the store answers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from migrator.engine.mirror import Mirror
from migrator.errors import Interrupted, Waiting
from migrator.model.phase import Phase
from migrator.retry import GIVE_UP_SECONDS
from migrator.state import Run

LONG = GIVE_UP_SECONDS
"""Seconds of nothing but waiting for a store after which it is given up."""
_LOOK = 0.1


@contextmanager
def patient(
    run: Run, stop: threading.Event
) -> Iterator[tuple[threading.Event, Callable[[Mirror], None]]]:
    """What ends the mirror that this process is, and what is to be given that mirror. ``stop``
    ends it, and that it has only waited for a store for long, before a swap began: raises Waiting.
    """
    ends, done = threading.Event(), threading.Event()
    owners: list[Mirror] = []
    given_up: list[str] = []

    def watch() -> None:
        since = None
        while not (done.wait(_LOOK) or stop.is_set() or given_up):
            waits = owners[0].telling.waits if owners else ""
            since = (since or time.monotonic()) if waits else None
            long = since is not None and time.monotonic() > since + LONG
            if long and is_next(owners[0].run):
                given_up.append(waits)
        ends.set()

    thread = threading.Thread(target=watch, name="patience", daemon=True)
    thread.start()
    try:
        yield ends, owners.append
    except Interrupted:
        if given_up:
            raise only_waits(run, given_up[0]) from None
        raise
    finally:
        done.set()
        thread.join()


def is_next(run: Run) -> bool:
    """Whether nothing but a swap or a finish is left to be done, and no swap has begun."""
    return run.phase in (Phase.SHADOW_READ, Phase.CUT_OVER) and not run.fence


def only_waits(run: Run, waits: str) -> Waiting:
    """That a mirror has only waited for a store, so that what it was asked for was taken back."""
    return Waiting(
        f"for {LONG:.0f} s the mirror has only waited for {waits}",
        hint="the request was taken back: see that nothing of it was done, with migrator status "
        f"{run.revision}, and ask again once that answers",
    )


__all__ = ["LONG", "is_next", "only_waits", "patient"]
