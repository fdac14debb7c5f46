"""Whole drills: of a move that loses nothing, and of one that lost a write on purpose."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from migrator import commands
from migrator.drill import Drill, DrillTerms, Report
from migrator.drill.history import Act
from migrator.drill.page import page
from tests.cli.kit import Project, new_shop, one_line

EACH = dict.fromkeys(Act, 1.0)
# The machine may be busy with other tests.
PATIENT = commands.Terms(swap=commands.SwapTerms(bound=20, lag=2))
QUICK = DrillTerms(
    writers=1, rate=300, keys=5, mix=EACH, seconds=0.5, minimum=3, seed=1, kills=0, lease=1.0,
    apply=PATIENT,
)  # fmt: skip


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    made = new_shop(tmp_path, games=30)
    made.edit(
        "migrator.toml",
        (
            "[env.dev.stores.shop]",
            "[env.dev]\nstaging = true\nrequest_life = 0.5\n\n[env.dev.stores.shop]",
        ),
    )
    return made


def held(shop: Project) -> list[tuple[object, ...]]:
    """What lies in the shop, tables and triggers included."""
    queries = (
        "SELECT * FROM game ORDER BY id",
        "SELECT * FROM round ORDER BY game, number",
        "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite%' ORDER BY name",
    )
    with sqlite3.connect(shop.root / "shop.db") as db:
        rows = [row for query in queries for row in db.execute(query)]
    db.close()
    return rows


def test_a_move_that_loses_nothing_passes(shop: Project) -> None:
    before = held(shop)
    done = shop.done(
        "drill", "0001", "--writers", "1", "--rate", "300", "--keys", "5", "--seconds", "0.5",
        "--minimum", "3", "--kills", "2", "--lease", "1", "--bound", "20", "--lag", "2",
        "--format", "json",
    )  # fmt: skip
    report = msgspec.convert(done.json, Report)
    assert json.loads(msgspec.json.encode(report)) == done.json
    assert (report.passed, report.reasons, report.ending) == (True, [], "aborted")
    assert {"mirror", "writer 0"} == {kill.process for kill in report.kills}
    assert all(count.acknowledged >= 3 for count in report.done.values())
    assert report.done.keys() == {"put", "update", "append", "delete", "get"}
    assert [stage.name for stage in report.stages if stage.pause] == [
        "cut over", "roll back", "cut over again",
    ]  # fmt: skip
    assert sum(report.throughput) == sum(count.acknowledged for count in report.done.values())
    assert report.lag
    # Nothing is left of it, but what it tells.
    assert held(shop) == before
    told = shop.root / "drills" / report.run
    assert json.loads(told.with_suffix(".json").read_text()) == done.json
    assert "Passed" in told.with_suffix(".html").read_text()


def test_a_write_that_was_lost_on_purpose_is_found(shop: Project) -> None:
    stages = []

    def lose(stage: str) -> None:
        stages.append(stage)
        if stage == "check":
            with sqlite3.connect(shop.root / "docs.db") as db:
                (id,) = db.execute("SELECT id FROM collections WHERE name = 'games'").fetchone()
                table = f"entries_{id}"
                lost = db.execute(
                    f"DELETE FROM {table} WHERE block = (SELECT max(block) FROM {table})"
                )
                assert lost.rowcount
            db.close()

    with commands.Project(shop.root / "migrator.toml") as project:
        plan = commands.plan(project, "0001", live=True)
        drill = Drill(project, plan, replace(QUICK, finish=True), told=lose)
        report = drill.run()
    assert not report.passed
    assert [reason[:30] for reason in report.reasons] == ["acknowledged writes are missin"]
    # The mirror carries the loss on, so both sides are equal: only the history tells.
    assert {(fault.what, fault.side) for fault in report.faults} == {
        ("missing", "primary"), ("missing", "mirror"),
    }  # fmt: skip
    assert all(each.clean for each in report.verified)
    assert report.reasons[0].startswith("acknowledged writes are missing: 2 times")
    assert (report.ending, report.left, report.kills) == ("finished", 0, [])
    assert "Failed" in page(report)


def test_it_is_refused_outside_of_staging(shop: Project) -> None:
    before = held(shop)
    shop.edit("migrator.toml", ("staging = true", "staging = false"))
    told = one_line(shop("drill", "0001"), 3, "refused")
    assert "environment dev is not there for drills" in told
    assert "[env.dev]  staging = true" in told
    assert held(shop) == before
    assert not (shop.root / "drills").exists()
