"""A live move that is left before anything was made."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from migrator import commands
from migrator.commands import live
from migrator.engine import points
from migrator.errors import Interrupted
from migrator.state import Lease, LiveState
from tests.cli.kit import SETTINGS, Project, one_line


def test_a_run_that_prepared_nothing_is_left_though_the_targets_file_is_not_there(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shop.root / "migrator.toml").write_text(SETTINGS.replace("embedded:///", "sqlite:///"))
    shop.done("plan", "0001", "--live", "-o", "live.json")

    def stop(point: str) -> None:
        if point == "run.started":
            raise Interrupted("stopped")

    monkeypatch.setattr(points, "hook", stop)
    assert shop("apply", "live.json", "--until", "dual_write").code == 130
    monkeypatch.setattr(points, "hook", None)
    assert not (shop.root / "docs.db").exists()

    assert "aborted" in shop.done("abort", "0001", "--drop-target").out

    assert "0001  Game   aborted" in shop.done("status", "0001").out
    assert shop.done("status").out.startswith("no run, or only aborted ones; see what would be")
    told = one_line(shop("cutover", "0001"), 3, "refused")
    assert "0001 is aborted: there is nothing to cut over" in told
    assert "migrator plan 0001 --live" in told
    assert not (shop.root / "docs.db").exists()


@pytest.mark.parametrize(("file", "nth"), [("shop.db", 1), ("docs.db", 2)])
def test_what_was_made_for_a_feed_goes_also_where_its_place_was_not_noted_yet(
    shop: Project, monkeypatch: pytest.MonkeyPatch, file: str, nth: int
) -> None:
    shop.done("plan", "0001", "--live", "-o", "live.json")
    prepared = []

    def stop(point: str) -> None:
        prepared.extend([point] * (point == "feed.prepared"))
        if len(prepared) == nth:
            raise Interrupted("stopped")

    monkeypatch.setattr(points, "hook", stop)
    assert shop("apply", "live.json", "--until", "shadow_read").code == 130
    monkeypatch.setattr(points, "hook", None)
    assert _made(shop, file)

    shop.done("abort", "0001", "--keep-target")

    assert _made(shop, file) == []


def test_what_a_silent_mirror_was_asked_for_is_not_done_later(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.done("plan", "0001", "--live", "-o", "live.json")
    shop.done("apply", "live.json", "--until", "prepared")
    monkeypatch.setattr(live, "GONE", 0.1)
    with commands.Project(shop.root / "migrator.toml", "dev") as project:
        with Lease(project.control, "dev/0001/mirror"):
            told = one_line(shop("abort", "0001", "--keep-target"), 5, "waiting")
            assert "said nothing" in told
            assert "taken back" in told
        state = LiveState(project.control, project.control.run("0001").id)
        assert state.asked() is None
    told = shop.done("abort", "0001", "--leave-target").out
    assert "left as it is: docs:games" in told
    assert "remove there what begins with migrator_" in told


def _made(shop: Project, file: str) -> list[tuple[str]]:
    """The triggers and tables that lie in a file for feeds."""
    query = "SELECT name FROM sqlite_master WHERE type = 'trigger' OR name LIKE '%outbox%'"
    with closing(sqlite3.connect(shop.root / file)) as c:
        return c.execute(query).fetchall()
