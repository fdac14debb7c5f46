"""SIGINT and SIGTERM: the first asks the work to stop at its next page, a second may end it now.

Whoever sends a SIGTERM sends SIGKILL after a while. Where a server does not answer, or another
holds a lock, no page may end before that, nor even begin: the mirror ends by itself then, from
beside, and tells.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from migrator.cli.output import tell
from migrator.errors import Interrupted

EXIT = 130
# Seconds that a mirror has for its page. Kubernetes kills after 30, systemd after 90.
PATIENCE = 20.0
_working: threading.Event | None = None
_patience: float | None = None
# Whether a signal came before there was work to stop. The exception that it raises is lost where it
# strikes in a callback of the interpreter (a weak reference's, of which each import has one).
_asked = False
# Whether this process runs one command and nothing else.
is_ours = False


def install(*, whole: bool) -> None:
    """Handle both signals from here on, for the whole process, which is ours alone if ``whole``."""
    global is_ours, _asked
    is_ours, _asked = whole, False
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _handle)
    if whole:
        heard, wakes = os.pipe()
        os.set_blocking(wakes, False)
        # Written to by the kernel's handler itself: ours waits until the main thread has come back
        # from where it is, perhaps a driver's wait for a server.
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
        threading.Thread(target=_beside, args=[heard], name="signals", daemon=True).start()


def _handle(number: int, _: FrameType | None) -> None:
    global _asked
    if _working is None:
        _asked = True
        raise KeyboardInterrupt
    if not _working.is_set():
        _working.set()
        tell("stopping at the next page (once more: at once)", to_stderr=True)
    elif number == signal.SIGINT:
        _leave_now()


def _beside(heard: int) -> None:
    """Leave where the work does not end in time after a signal."""
    while True:
        asked = {signal.SIGINT, signal.SIGTERM} & set(os.read(heard, 64))
        if asked and (patience := _patience) is not None:
            time.sleep(patience)
            _leave_now()


def _leave_now() -> None:
    # Threads that wait for a server can't be ended otherwise. Nothing is lost: a checkpoint is
    # never ahead of the data, and the lease of a dead process is taken over at once.
    if sys.stderr.isatty():
        sys.stderr.write("\x1b[?25h")  # a progress bar may have hidden the cursor
    tell("stopped at once; what was done until the last checkpoint is kept", to_stderr=True)
    os._exit(EXIT)


def _refuse_asked() -> None:
    """Begin nothing after a signal that was heard and lost."""
    if _asked:
        raise KeyboardInterrupt


@contextmanager
def bounded(within: float) -> Iterator[None]:
    """Where the process is ours, it is gone ``within`` so many seconds of a signal that comes while
    the block runs, whatever it waits for."""
    global _patience
    _patience = within
    try:
        _refuse_asked()
        yield
    finally:
        _patience = None


@contextmanager
def stoppable(go_on: str = "") -> Iterator[threading.Event]:
    """The event that the first signal sets while the block runs.

    ``go_on`` is the command that goes on from there; an Interrupted that comes out names it.
    """
    global _working
    _working = stop = threading.Event()
    try:
        _refuse_asked()
        yield stop
    except Interrupted as error:
        if go_on and error.what.startswith("stopped"):
            raise Interrupted(error.what, hint=f"go on with:  {go_on}") from error
        raise
    finally:
        _working = None
