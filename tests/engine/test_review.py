"""What must not be lost: leftovers, late writes, stale plans, half-done steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator import commands
from migrator.errors import Refused
from migrator.model.block import Aggregate, cut
from migrator.model.canonical import equal
from migrator.model.phase import Phase
from migrator.model.value import Value
from migrator.planning import survey
from tests.engine.games import contents, fill, game, make_project, source, target


@pytest.fixture
def project(tmp_path: Path) -> Iterator[commands.Project]:
    with commands.Project(make_project(tmp_path), "test") as opened:
        fill(source(opened), [(str(n), game(n)) for n in range(50)])
        yield opened


@pytest.fixture
def lenient(tmp_path: Path) -> Iterator[commands.Project]:
    """A project that sets blocks aside, with one that is damaged: Game:deep."""
    with commands.Project(make_project(tmp_path, oversize="quarantine"), "test") as opened:
        fill(source(opened), [(str(n), game(n)) for n in range(5)])
        spoil(opened, "deep")
        yield opened


def spoil(project: commands.Project, id: str) -> None:
    """A block whose entries give no aggregate, behind the store's back."""
    with project.stores.get("old").writing() as connection:  # type: ignore[attr-defined]
        connection.execute("INSERT INTO entries_1 VALUES (?, 'rounds[5]', x'c0', NULL)", (id,))


def put(collection: object, id: Value, record: dict[str, Value]) -> None:
    collection.write([cut(Aggregate(id, record), collection.at.rules("Game"))])  # type: ignore[attr-defined]


def cut_over_without_deep(project: commands.Project) -> None:
    plan = commands.plan(project, "0001")
    codes = {f.code for f in plan.to_accept}
    terms = commands.Terms(accept=codes, accept_keys=["Game:deep"])
    assert commands.apply(project, plan, terms=terms).phase == "cut_over"


def test_a_sampled_plan_asks_before_it_deletes(
    project: commands.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(target(project), [("stranger", game(1))])
    monkeypatch.setattr(survey, "ALL_UP_TO", 10)
    plan = commands.plan(project, "0001")
    assert not plan.moves[0].exact
    with pytest.raises(Refused, match="A107"):
        commands.apply(project, plan)
    assert "stranger" in contents(target(project))
    commands.apply(project, plan, terms=commands.Terms(accept=["A107"]))
    assert "stranger" not in contents(target(project))


def test_blocks_that_came_after_the_plan_are_not_deleted(project: commands.Project) -> None:
    fill(target(project), [("0", game(0))])
    plan = commands.plan(project, "0001")
    put(target(project), "stranger", game(1))
    with pytest.raises(Refused, match="stranger"):
        commands.apply(project, plan)
    assert "stranger" in contents(target(project))


def test_a_target_filled_after_the_plan_makes_it_stale(project: commands.Project) -> None:
    target(project).create()
    plan = commands.plan(project, "0001")
    put(target(project), "3", game(77))
    with pytest.raises(Refused, match="empty"):
        commands.apply(project, plan)
    assert project.control.runs() == []
    assert equal(contents(target(project))["3"], game(77))


def test_abort_does_not_drop_what_the_run_did_not_make(project: commands.Project) -> None:
    plan = commands.plan(project, "0001")
    commands.apply(project, plan, until=Phase.PLANNED)
    fill(target(project), [("3", game(77))])
    with pytest.raises(Refused, match="empty"):
        commands.apply(project, plan)
    with pytest.raises(Refused, match="keep-target"):
        commands.abort(project, "0001", drop_target=True)
    commands.abort(project, "0001", drop_target=False)
    assert "3" in contents(target(project))


def test_a_later_write_of_an_accepted_key_is_not_lost_by_a_rollback(
    lenient: commands.Project,
) -> None:
    cut_over_without_deep(lenient)
    put(target(lenient), "deep", game(9))
    with pytest.raises(Refused, match="Game:deep"):
        commands.rollback(lenient, "0001")
    commands.rollback(lenient, "0001", carry_back=True)
    assert equal(contents(source(lenient))["deep"], game(9))


def test_quarantine_is_not_retried_over_a_primary(lenient: commands.Project) -> None:
    cut_over_without_deep(lenient)
    put(source(lenient), "deep", game(1))
    put(target(lenient), "deep", game(9))
    with pytest.raises(Refused, match="rollback"):
        commands.retry_quarantined(lenient, "0001")
    assert equal(contents(target(lenient))["deep"], game(9))


def test_a_leftover_of_a_key_in_quarantine_is_not_carried_back(
    lenient: commands.Project,
) -> None:
    fill(target(lenient), [("deep", game(1))])
    cut_over_without_deep(lenient)
    assert "deep" not in contents(target(lenient))
    put(target(lenient), "born", game(9))
    commands.rollback(lenient, "0001", carry_back=True)
    found = [block for block in source(lenient).read(["deep", "born"]) if block is not None]
    assert [list(block.entries) for block in found] == [["rounds[5]"], [""]]
