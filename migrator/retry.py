"""The one place where a request is repeated: transient errors, jittered, bounded, logged.

The engine sends each call of a port through a ``Retry``. Where a store takes many requests for one
call, it sends each by ``request`` (or tells of one it had sent already by ``again``), so that what
fails goes again by itself and not the whole page. They find the Retry of the call that is under
way; without one, as in a test of a store alone, a request is sent once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import ParamSpec, TypeVar

import structlog
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_after_delay,
    stop_when_event_set,
    wait_random_exponential,
)

from migrator.errors import Interrupted, Transient

P = ParamSpec("P")
T = TypeVar("T")

GIVE_UP_SECONDS = 120.0
LONGEST_WAIT_SECONDS = 10.0

log = structlog.get_logger("migrator.retry")


class Retry:
    """Calls a store until it answers, for at most ``seconds``; counts what it repeated. ``waits``
    is what it waits for: where, and why; empty for nothing.

    Raises Interrupted where ``stop`` was set while it waited, and whatever ``check`` raises,
    which is asked before each sending: who lost the right to write must not send a page late.

    Only idempotent requests may go through here: a request whose outcome is unknown is sent
    again as it was (R6). The bound is that of one request: a call of many may take longer, as
    long as each of them gets through, and one that was given up is not tried anew with its call.
    """

    def __init__(
        self,
        seconds: float | None = None,
        stop: threading.Event | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.repeated = 0
        self.waits = ""
        self._seconds = GIVE_UP_SECONDS if seconds is None else seconds
        self._stop = stop
        self._lock = threading.Lock()
        self.check = check

    def __call__(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:  # as ``_send``, without a call more
            self.check()
            token = _under_way.set(self)
            try:
                return call(*args, **kwargs)
            finally:
                _under_way.reset(token)
        except Transient as error:
            return self.after(error, call, *args, **kwargs)

    def after(self, error: Transient, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Repeat what was sent once and failed so."""
        if not _repeatable(error):
            raise error
        self.note(error)
        return self._again(call, *args, **kwargs)

    def _send(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.check()
        token = _under_way.set(self)
        try:
            return call(*args, **kwargs)
        finally:
            _under_way.reset(token)

    def _again(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        stop = self._stop or threading.Event()  # made for none of the many that are sent once
        retrying = Retrying(
            retry=retry_if_exception(_repeatable),
            wait=wait_random_exponential(multiplier=0.1, max=LONGEST_WAIT_SECONDS),
            stop=stop_after_delay(self._seconds) | stop_when_event_set(stop),
            sleep=sleep_using_event(stop),
            before_sleep=self._waits,
            reraise=True,
        )
        try:
            answer: T = retrying(self._send, call, *args, **kwargs)
            return answer
        except Transient as error:
            if stop.is_set():
                raise Interrupted("stopped, nothing lost", where=error.where) from error
            error.given_up = _repeatable(error)
            raise
        finally:
            self.waits = ""

    def _waits(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, Transient):
            self.waits = error.head
        self.note(error, state.next_action.sleep if state.next_action else 0.0)

    def note(self, error: BaseException | None, wait: float = 0.0) -> None:
        """Count and log what is sent again after so many seconds."""
        with self._lock:
            self.repeated += 1
        where = getattr(error, "where", "")
        log.warning("retry", where=where, error=str(error).partition("\n")[0], wait=round(wait, 2))


_under_way: ContextVar[Retry | None] = ContextVar("retry", default=None)


def _repeatable(error: BaseException) -> bool:
    """Whether what failed so may be sent again here: a stale request goes with its call alone."""
    if not isinstance(error, Transient) or error.given_up:
        return False
    return not error.stale or _under_way.get() is None


def request(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Send one of the requests that a call takes; where it fails for now, it alone goes again.

    It has to be idempotent by itself: what depends on another request's answer goes with it.
    """
    retry = _under_way.get()
    return call(*args, **kwargs) if retry is None else retry(call, *args, **kwargs)


def insisted(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """As ``request``, of what has to be known also where nobody repeats the call that asks."""
    return (_under_way.get() or Retry())(call, *args, **kwargs)


def again(error: Transient, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """As ``request``, for one that was sent already, among others, and failed so."""
    retry = _under_way.get()
    if retry is None:
        raise error
    return retry.after(error, call, *args, **kwargs)


def elsewhere(error: Transient) -> None:
    """Count a request that failed so and is sent to another server at once."""
    retry = _under_way.get()
    if retry is not None:
        retry.note(error)


def check() -> None:
    """Raise where the call under way may send no more: to be asked before each sending that
    goes by neither ``request`` nor ``again``."""
    retry = _under_way.get()
    if retry is not None:
        retry.check()
