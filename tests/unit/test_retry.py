"""The one place that repeats: a request by itself, counted, bounded, and never behind a check."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest
from structlog.testing import capture_logs

from migrator.errors import Interrupted, Refused, Terminal, Transient
from migrator.retry import Retry, again, check, request


class Server:
    """Answers to numbers; a share of its requests fails for now."""

    def __init__(self, seed: int, share: float) -> None:
        self.asked: Counter[int] = Counter()
        self.failed = 0
        self._random = random.Random(seed)
        self._share = share

    def ask(self, number: int) -> int:
        self.asked[number] += 1
        if self._random.random() < self._share:
            self.failed += 1
            raise Transient("come later")
        return number * number


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.retry.LONGEST_WAIT_SECONDS", 0.001)


def page(send: Callable[[int], int]) -> list[int]:
    """A call of many requests."""
    return [send(number) for number in range(200)]


@pytest.mark.parametrize("seed", range(5))
def test_of_a_page_only_the_requests_that_failed_go_again(seed: int) -> None:
    server, retry = Server(seed, 0.3), Retry()
    pages = 0

    def read() -> list[int]:
        nonlocal pages
        pages += 1
        return page(lambda number: request(server.ask, number))

    with capture_logs() as logs:
        assert retry(read) == page(lambda number: number * number)
    assert pages == 1
    assert server.asked.total() == 200 + server.failed
    assert retry.repeated == server.failed == len(logs) > 0


def test_what_was_sent_among_others_goes_again_by_itself() -> None:
    server, retry = Server(1, 0.3), Retry()

    def send(number: int) -> int:
        try:
            return server.ask(number)  # as if it had been under way with others
        except Transient as error:
            return again(error, server.ask, number)

    assert retry(page, send) == page(lambda number: number * number)
    assert retry.repeated == server.failed > 0


def test_without_a_retry_under_way_a_request_is_sent_once() -> None:
    server = Server(1, 1.0)
    with pytest.raises(Transient):
        request(server.ask, 1)
    with pytest.raises(Transient, match="sent before"):
        again(Transient("sent before"), server.ask, 2)
    check()
    assert server.asked == {1: 1}
    Retry()(lambda: None)
    with pytest.raises(Transient):
        request(server.ask, 1)  # the retry is over


def test_a_request_that_was_given_up_is_not_tried_anew_with_its_call() -> None:
    server, retry = Server(1, 1.0), Retry(seconds=1.0)
    calls = 0

    def read() -> int:
        nonlocal calls
        calls += 1
        return request(server.ask, 1)

    with pytest.raises(Transient) as caught:
        retry(read)
    assert caught.value.given_up
    assert calls == 1
    assert server.asked[1] > 1


def test_a_stale_request_goes_again_with_its_call_alone() -> None:
    asked: list[str] = []
    masters = iter(("old", "new"))

    def ask(master: str) -> str:
        asked.append(master)
        if master == "old":
            raise Transient("no master any more", stale=True)
        return master

    assert Retry()(lambda: request(ask, next(masters))) == "new"
    assert asked == ["old", "new"]


def test_what_fails_beside_the_requests_repeats_the_call() -> None:
    server, retry = Server(1, 0.0), Retry()
    tries = iter(range(3))

    def read() -> int:
        found = request(server.ask, 1)
        if next(tries) < 2:
            raise Transient("it changed meanwhile")
        return found

    assert retry(read) == 1
    assert (server.asked[1], retry.repeated) == (3, 2)


def test_nothing_is_sent_once_the_right_to_is_lost() -> None:
    server = Server(1, 0.5)
    lost = False

    def lease() -> None:
        if lost:
            raise Refused("another has the lease")

    def write(number: int) -> int:
        nonlocal lost
        lost = number == 100
        return request(server.ask, number)

    with pytest.raises(Refused):
        Retry(check=lease)(page, write)
    assert max(server.asked) == 99

    def together() -> None:
        nonlocal lost
        lost = True
        check()

    lost = False
    with pytest.raises(Refused):
        Retry(check=lease)(together)


def test_a_stop_ends_the_waiting_of_a_single_request() -> None:
    server, stop = Server(1, 1.0), threading.Event()

    def read() -> int:
        stop.set()
        return request(server.ask, 1)

    with pytest.raises(Interrupted):
        Retry(stop=stop)(read)


def test_what_is_wrong_for_good_is_not_repeated() -> None:
    calls = 0

    def refuse() -> None:
        nonlocal calls
        calls += 1
        raise Terminal("no")

    with pytest.raises(Terminal):
        Retry()(request, refuse)
    assert calls == 1


def test_threads_of_a_call_repeat_by_its_retry_and_others_by_theirs() -> None:
    server, retry = Server(2, 0.3), Retry()

    def read() -> list[int]:
        def send(number: int) -> int:
            return request(server.ask, number)

        with ThreadPoolExecutor(4) as pool:
            runs = [pool.submit(copy_context().run, send, number) for number in range(100)]
            with pytest.raises(Transient):
                pool.submit(request, Server(1, 1.0).ask, 1).result()
            return [run.result() for run in runs]

    assert retry(read) == [number * number for number in range(100)]
    assert retry.repeated == server.failed > 0
