"""Each phase of a test has pytest-timeout's limit: past it the test fails, and tells what hung.

That plugin's own timer runs once for all tries of a test: what hung would have none for its second
one, nor for what cleans up behind it. And what it tells of other threads is lost in a worker.
"""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from collections.abc import Generator
from typing import Any

import pytest
import pytest_timeout

AGAIN = 60.0  # seconds that each step has which cleans up behind what hung
_limit = pytest.StashKey[float]()


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    item.stash[_limit] = settings.timeout
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_cancel_timer() -> bool:
    signal.setitimer(signal.ITIMER_REAL, 0)
    return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    return (yield from _limited(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    return (yield from _limited(item))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    return (yield from _limited(item))


def _limited(item: pytest.Item) -> Generator[None, None, None]:
    seconds = item.stash.get(_limit, 0.0)
    if not seconds:
        return (yield)

    def expire(*_: object) -> None:
        if not pytest_timeout.is_debugging():
            pytest.fail(f"it took more than {seconds:g} s, and hung here\n{_others()}")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _others() -> str:
    """Where all other threads are."""
    frames = sys._current_frames()
    return "\n".join(
        f"thread {each.name}:\n" + "".join(traceback.format_stack(frames[each.ident]))
        for each in threading.enumerate()
        if each is not threading.current_thread() and each.ident in frames
    )
