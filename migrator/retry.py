"""The one place where a request is repeated: transient errors, jittered, bounded, logged."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import structlog
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_delay,
    wait_random_exponential,
)

from migrator.errors import Transient

P = ParamSpec("P")
T = TypeVar("T")

GIVE_UP_SECONDS = 120.0
LONGEST_WAIT_SECONDS = 10.0

log = structlog.get_logger("migrator.retry")


class Retry:
    """Calls a store until it answers, for at most ``seconds``; counts what it repeated.

    Only idempotent requests may go through here: a request whose outcome is unknown is sent
    again as it was (R6).
    """

    def __init__(self, seconds: float = GIVE_UP_SECONDS) -> None:
        self.repeated = 0
        self._seconds = seconds

    def __call__(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return call(*args, **kwargs)
        except Transient:
            return self._again(call, *args, **kwargs)

    def _again(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        retrying = Retrying(
            retry=retry_if_exception_type(Transient),
            wait=wait_random_exponential(multiplier=0.1, max=LONGEST_WAIT_SECONDS),
            stop=stop_after_delay(self._seconds),
            before_sleep=self._note,
            reraise=True,
        )
        return retrying(call, *args, **kwargs)

    def _note(self, state: RetryCallState) -> None:
        self.repeated += 1
        error = state.outcome.exception() if state.outcome else None
        where = getattr(error, "where", "")
        wait = state.next_action.sleep if state.next_action else 0.0
        log.warning("retry", where=where, error=str(error).splitlines()[0], wait=round(wait, 2))
