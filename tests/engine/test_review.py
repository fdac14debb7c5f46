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
