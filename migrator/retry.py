"""The one place where a request is repeated: transient errors, jittered, bounded, logged."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import structlog
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
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
    """Calls a store until it answers, for at most ``seconds``; counts what it repeated.

    Raises Interrupted where ``stop`` was set while it waited, and whatever ``check`` raises,
    which is asked before each sending: who lost the right to write must not send a page late.

    Only idempotent requests may go through here: a request whose outcome is unknown is sent
    again as it was (R6).
    """

    def __init__(
        self,
        seconds: float = GIVE_UP_SECONDS,
        stop: threading.Event | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.repeated = 0
        self._seconds = seconds
        self._stop = stop or threading.Event()
        self._check = check

    def __call__(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return self._send(call, *args, **kwargs)
        except Transient as error:
            self._tell(error, 0.0)
            return self._again(call, *args, **kwargs)

    def _send(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._check()
        return call(*args, **kwargs)

    def _again(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        retrying = Retrying(
            retry=retry_if_exception_type(Transient),
            wait=wait_random_exponential(multiplier=0.1, max=LONGEST_WAIT_SECONDS),
            stop=stop_after_delay(self._seconds) | stop_when_event_set(self._stop),
            sleep=sleep_using_event(self._stop),
            before_sleep=self._note,
            reraise=True,
        )
        try:
            answer: T = retrying(self._send, call, *args, **kwargs)
            return answer
        except Transient as error:
            if self._stop.is_set():
                raise Interrupted("stopped, nothing lost", where=error.where) from error
            raise

    def _note(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        self._tell(error, state.next_action.sleep if state.next_action else 0.0)

    def _tell(self, error: BaseException | None, wait: float) -> None:
        self.repeated += 1
        where = getattr(error, "where", "")
        log.warning("retry", where=where, error=str(error).partition("\n")[0], wait=round(wait, 2))
