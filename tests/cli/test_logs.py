"""The log on stderr: for people by default, JSON where asked for, the run's id on every line."""

from __future__ import annotations

import json
import re
import threading
import time
from contextlib import suppress

import pytest
import structlog
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from migrator import commands
from migrator.cli import logs
from migrator.cli.options import Options
from migrator.cli.watch import Meter, Watch
from migrator.commands import SwapTerms
from migrator.engine import points, settled
from migrator.errors import Interrupted
from migrator.gateway import Gateway
from migrator.model.phase import Phase
from tests.cli.kit import Project
from tests.ending import PATIENCE, joined
from tests.gateway.kit import QUICK, until


def test_json_lines_with_the_id_of_the_run(shop: Project) -> None:
    shop.convert("player", "quarantine")
    answer = shop(
        "apply", "0001", "--yes", "--accept", "E103", "--log-format", "json", "--log-level", "info"
    )
    *lines, _, _ = answer.err.splitlines()  # the last two are the error: what, and what to do
    events = [json.loads(line) for line in lines]
    run = shop.done("status", "--format", "json").json[0]["run"]
    assert {event["run"] for event in events} == {run}
    aside = [event for event in events if event["event"] == "quarantined"]
    # Written by the threads of the tasks, which know the run too.
    assert {event["key"] for event in aside} == {"Game:1", "Game:2", "Game:3"}
    assert {event["level"] for event in aside} == {"warning"}


def test_mirror_gateway_and_cutover_log_the_id_of_one_run_in_all_their_threads(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, stop = shop.root / "migrator.toml", threading.Event()
    lags, goes_on = threading.Event(), threading.Event()
    log, threads = structlog.get_logger("test"), set[str]()

    def meets(point: str) -> None:
        threads.add(name := threading.current_thread().name)
        log.info("reached", point=point)
        if (name, point) == ("owner", "mirror.touched") and lags.is_set():
            goes_on.wait(PATIENCE)

    def mirrors() -> None:
        with commands.Project(config, "dev") as own, suppress(Interrupted):
            commands.mirror(own, "0001", stop=stop)

    logs.configure("info", "json")
    with commands.Project(config, "dev") as project:
        made = commands.plan(project, "0001", live=True)
        commands.apply(project, made, until=Phase.PREPARED)
        run = project.control.run("0001").id
        monkeypatch.setattr(points, "hook", meets)
        monkeypatch.setattr(settled, "GONE", 0.0)  # as if no mirror were running
        owner = threading.Thread(target=mirrors, name="owner")
        with capture_logs(processors=[merge_contextvars]) as told:
            owner.start()
            until(lambda: "mirroring" in {each["event"] for each in told})
            commands.apply(project, made, until=Phase.SHADOW_READ)
            with Gateway.open("Game", config, "dev", terms=QUICK, shadow=1.0) as games:
                lags.set()
                shop.change("UPDATE game SET score = 5")
                assert games.get(1) is not None
                until(lambda: "shadow reads not settled" in {each["event"] for each in told})
                goes_on.set()
                commands.cutover(project, "0001", swap=SwapTerms(bound=60, lag=60))
            stop.set()
            joined(owner)
    assert {"gateway sees", "mirroring", "phase"} <= {each["event"] for each in told}
    assert {"owner", "verify", "beside"} <= threads
    assert [each for each in told if each.get("run") != run] == []


def test_nothing_but_warnings_by_default(shop: Project) -> None:
    assert shop.done("apply", "0001", "--yes").err == ""


def test_what_data_holds_is_escaped_in_the_log(shop: Project) -> None:
    shop.change(
        "CREATE TABLE odd (id TEXT PRIMARY KEY NOT NULL, n TEXT)",
        "INSERT INTO odd VALUES ('a' || char(27) || '[2J' || char(155) || 'b', 'x')",
    )
    games = 'tables("game", rounds=tables("round", order_by="number"))'
    shop.edit("migrations/0001_games.py", (games, 'tables("odd")'))
    shop.convert("n", "quarantine")
    answer = shop("apply", "0001", "--yes", "--accept", "E103")
    assert "Game:a\\x1b[2J\\x9bb" in answer.err
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", answer.err + answer.out)


def test_a_meter_tells_a_rate_and_guesses_late() -> None:
    meter = Meter(0, 1_000, now=0.0)
    meter.advance(100, 8_000, now=1.0)
    assert meter.told(1.0) == "100/1,000  8,000 B  100/s"
    meter.advance(400, 32_000, now=5.0)
    assert meter.told(5.0) == "500/1,000  40 KB  100/s  5 s left"
    # A slow half minute counts, and not what went before it.
    for second in range(6, 66, 10):
        meter.advance(10, 0, now=float(second))
    assert meter.told(56.0).split("  ")[-2:] == ["1/s", "7 min 20 s left"]


def test_a_meter_that_goes_on_counts_only_what_it_did() -> None:
    meter = Meter(600, 1_000, now=0.0)
    meter.advance(400, 0, now=4.0)
    assert meter.summary(4.0) == "1,000 blocks, 400 of them now in 4 s (100/s)"
    # More than planned is no reason to show 120%.
    meter.advance(200, 0, now=5.0)
    assert meter.told(5.0).startswith("1,200/1,200")


def test_a_plain_line_every_few_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for log_format, lines in (("text", 3), ("json", 0)):
        with Watch(Options(log_format=log_format)) as watch:
            watch.begins("backfill", "Game", 0, 1_000)
            for _ in range(16):
                now[0] += 1
                watch.advances("backfill", "Game", 10, 100)
        told = capsys.readouterr().err.splitlines()
        assert len(told) == lines
        if told:
            assert told[0] == "backfill      Game  50/1,000  500 B  10/s  1 min 35 s left"
