"""throttle, pause and resume, while a copy goes on in another process."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import pytest

from migrator import commands
from tests.cli.kit import Project
from tests.ending import ended


def wait_until(what: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def end(process: subprocess.Popen[str]) -> str:
    out, err = ended(process)
    assert process.returncode == 0, err
    return out


def events(shop: Project) -> list[str]:
    return [each["event"] for each in shop.done("log", "0001", "--format", "json").json]


def test_a_paused_copy_mirrors_what_is_written_and_nothing_else(shop: Project) -> None:
    shop.done("plan", "0001", "--live", "-o", "live.json")
    shop.done("apply", "live.json", "--until", "dual_write")
    told = shop.done("pause", "0001").out
    assert "0001 is paused: nothing more is copied; writes to the primary go on being" in told
    process = shop.start("apply", "live.json", "--until", "shadow_read")
    shop.change("UPDATE game SET score = 22 WHERE id = 2")
    with commands.Project(shop.root / "migrator.toml") as project:
        (route,) = project.routes("0001")
        wait_until(lambda: route.target.read([2])[0])
        assert route.target.count() == 1
        (stands,) = commands.status(project)
        assert (stands.phase, stands.read, stands.paused) == ("dual_write", 0, True)
        assert "the copy is paused; let it go on:  migrator resume 0001" in shop.done("status").out
        shop.done("resume", "0001")
        end(process)
        assert route.target.count() == 3
    assert [e for e in events(shop) if e in ("paused", "resumed")] == ["paused", "resumed"]


def test_a_copy_at_rest_waits_too(shop: Project) -> None:
    shop.done("apply", "0001", "--yes", "--until", "dual_write")
    shop.done("pause", "0001")
    process = shop.start("apply", "0001", "--yes", "--until", "backfilled")
    with commands.Project(shop.root / "migrator.toml") as project:
        run = project.control.run("0001").id
        wait_until(lambda: project.control.tasks(run, 0, "backfill"))
        time.sleep(0.5)  # in which three blocks would be copied ten times over
        assert commands.status(project)[0].read == 0
        shop.done("throttle", "0001", "--rate", "1000")
        shop.done("resume", "0001")
        assert "3 blocks" in end(process)
        assert commands.status(project)[0].read == 3
    assert "rate=1000.0" in shop.done("log", "0001").out


def test_a_throttle_is_shown_and_taken_back(shop: Project) -> None:
    shop.done("apply", "0001", "--yes", "--until", "dual_write")
    assert shop.done("throttle", "0001", "--rate", "500").out == (
        "0001 is copied: 500 blocks/s at most\n"
    )
    assert "0 of 3 blocks copied (0%), at most 500 blocks/s" in shop.done("status").out
    shop.done("throttle", "0001", "--off")
    assert "at most" not in shop.done("status").out
    assert events(shop)[-2:] == ["throttled", "throttle off"]


@pytest.mark.parametrize("words", [[], ["--rate", "0"], ["--rate", "1", "--off"]])
def test_a_throttle_of_nothing_is_wrong_usage(shop: Project, words: list[str]) -> None:
    assert shop("throttle", "0001", *words).code == 64


def test_what_is_copied_can_not_be_held_back(shop: Project) -> None:
    assert shop("pause", "0001").code == 3
    shop.done("apply", "0001", "--yes", "--until", "backfilled")
    answer = shop("pause", "0001")
    assert answer.code == 3
    assert "0001 is backfilled: there is nothing left to copy" in answer.err
