"""The user's hook: by a command, and by HTTP."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from migrator import commands
from migrator.commands import SwapTerms
from migrator.engine import hook
from migrator.errors import MigratorError, Refused, Transient, Waiting
from migrator.model.phase import Phase
from tests.engine.games import fill, game, make_project, source

FACTS = {"run": "0001-x", "primary": "source"}


class Application:
    """Stops and starts its writes when it is asked to over HTTP; or says no, or nothing."""

    def __init__(self) -> None:
        self.asked: list[tuple[dict[str, Any], str | None]] = []
        self.answers: dict[str, int] = {}
        self.silent = threading.Event()
        self.silent.set()

    @contextmanager
    def serving(self) -> Iterator[str]:
        application = self

        class Asked(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                application.asked.append((body, self.headers["Authorization"]))
                application.silent.wait()
                self.send_response(application.answers.get(body["event"], 204))
                self.end_headers()
                self.wfile.write(b"three writers are under way")

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Asked)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/writes?app=shop"
        finally:
            self.silent.set()
            server.shutdown()
            server.server_close()

    @property
    def events(self) -> list[str]:
        return [body["event"] for body, _ in self.asked]


def test_a_swap_stops_writes_and_lets_them_go_on_over_http(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    application = Application()
    monkeypatch.setenv(hook.TOKEN, "s3cret\n")
    with (
        application.serving() as address,
        commands.Project(make_project(tmp_path), "test") as project,
    ):
        fill(source(project), [("1", game(1))])
        made, _ = commands.plan_to_file(project, "0001", live=True)
        commands.apply(project, made, until=Phase.SHADOW_READ)
        terms = SwapTerms(bound=60, lag=60, hook=address)
        application.answers["fence"] = 503
        with pytest.raises(MigratorError, match="503 at fence: three writers are under way"):
            commands.cutover(project, "0001", swap=terms)
        assert application.events == ["fence", "undo"]
        application.answers.clear()
        commands.cutover(project, "0001", swap=terms)
        assert application.events == ["fence", "undo", "fence", "release"]
        (body, token) = application.asked[-1]
        run = project.control.run("0001")
        assert body == {
            "event": "release", "run": run.id, "revision": "0001", "primary": "target",
            "epoch": "2", "attempt": str(run.attempt),
        }  # fmt: skip
        assert token == "Bearer s3cret"
        assert "s3cret" not in str(commands.events(project, "0001"))


def test_an_address_that_does_not_answer_in_time_has_not_done_it() -> None:
    application = Application()
    with application.serving() as address:
        application.silent.clear()
        with pytest.raises(Waiting, match=r"did not end within 0\.2 s at fence"):
            hook.call(address, "fence", FACTS, 0.2)


def test_an_address_that_nobody_answers_at_is_told_of() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and does not listen; nobody else gets the port meanwhile
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
        with pytest.raises(Transient, match="can't be asked at fence"):
            hook.call(address, "fence", FACTS, 60.0)


@pytest.mark.parametrize("secret", ["s3\ncret", "s3\N{RIGHT SINGLE QUOTATION MARK}cret"])
def test_a_secret_that_no_header_carries_is_told_of_and_not_shown(
    secret: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(hook.TOKEN, secret)
    with Application().serving() as address, pytest.raises(Transient, match=hook.TOKEN) as told:
        hook.call(address, "fence", FACTS, 60.0)
    assert "s3" not in str(told.value)
    assert "s3" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    "address",
    [
        "http://", "http://shop:x/", "https://me:pass@shop/writes", "http://shop/a b?key=pass@",
        "http://shop/\N{LATIN SMALL LETTER A WITH DIAERESIS}",
    ],
)  # fmt: skip
def test_an_address_that_can_not_be_kept_is_refused_at_once(address: str) -> None:
    with pytest.raises(Refused, match="the hook") as refused:
        SwapTerms(hook=address)
    assert "pass@" not in str(refused.value)


def test_a_command_that_takes_too_long_goes_with_all_it_started(tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    os.mkfifo(ended)
    # What it started writes there when it ends by itself; the reader then gets more than nothing.
    inner = f"exec 3>{ended}; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; "
    command = f"sh -c '{inner} echo on >&3' & wait"
    reader = os.open(ended, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with pytest.raises(Waiting, match="at fence"):
            hook.call(command, "fence", FACTS, 1.0)
        (tmp_path / "go").touch()
        os.set_blocking(reader, True)
        assert os.read(reader, 10) == b""
    finally:
        os.close(reader)


def test_a_command_that_fails_says_why() -> None:
    with pytest.raises(Transient, match="the hook ended with 3 at undo: undo of 0001-x"):
        hook.call('echo "$MIGRATOR_EVENT of $MIGRATOR_RUN" >&2; exit 3', "undo", FACTS, 60.0)
