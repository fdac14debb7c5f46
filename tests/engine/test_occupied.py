"""A live move into a target that holds blocks already: of an aborted run, or somebody else's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator import commands
from migrator.engine import points
from migrator.errors import Refused
from migrator.model.block import Address
from migrator.model.move import At
from migrator.model.phase import Phase
from migrator.model.value import Int64
from tests.engine.games import assert_equal, contents, fill, game, make_project, source, target

ACCEPTED = commands.Terms(accept=["A107", "A133"])
# Where keys change: by a field that no two games have in common.
REKEYED = """from migrator import At, ChangeId, Move

revision, down_revision = "0001", None

move = Move(
    "Game", source=At("old", "games"), target=At("new", "by_score"),
    evolve=[ChangeId("score", stays="id")],
)
"""


class Crash(Exception):
    """A kill of the process."""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[commands.Project]:
    with commands.Project(make_project(tmp_path), "test") as project:
        fill(source(project), ((str(n), game(n)) for n in range(20)))
        yield project
    points.hook = None


def _leave_a_copy(project: commands.Project) -> None:
    """A live run that is aborted, and keeps its target."""
    made, _ = commands.plan_to_file(project, "0001", live=True)
    commands.apply(project, made, until=Phase.SHADOW_READ)
    commands.abort(project, "0001", drop_target=False)


def _diverge(project: commands.Project) -> None:
    """What happens to both sides while nothing follows them."""
    fill(source(project), [("3", game(3, rounds=9)), ("new", game(100))])
    source(project).delete([Address("4")])
    fill(target(project), [("foreign", game(200))])


def test_an_aborted_run_is_taken_up_once_somebody_agreed(project: commands.Project) -> None:
    _leave_a_copy(project)
    _diverge(project)
    made, _ = commands.plan_to_file(project, "0001", live=True)

    with pytest.raises(Refused, match="A1"):
        commands.apply(project, made, until=Phase.SHADOW_READ)
    assert "foreign" in contents(target(project))
    commands.apply(project, made, until=Phase.SHADOW_READ, terms=ACCEPTED)

    told = next(each for each in made.to_accept if each.code == "A133")
    assert (told.keys, told.count) == (["Game:3"], 1)
    assert "18 equal, 1 that differ, 2 that old:games lacks" in told.text
    assert_equal(contents(target(project)), contents(source(project)))
    copied = project.control.events(project.control.run("0001").id, "copied")[-1]["detail"]
    assert isinstance(copied, dict)
    assert [copied[n] for n in ("create", "change", "delete", "leave")] == [1, 1, 2, 18]


def test_equal_blocks_have_to_be_agreed_to_as_well(project: commands.Project) -> None:
    _leave_a_copy(project)
    made, _ = commands.plan_to_file(project, "0001", live=True)
    assert [each.code for each in made.to_accept] == ["A133"]
    _diverge(project)  # after the plan: what lies there when the move begins is what counts

    commands.apply(project, made, until=Phase.SHADOW_READ, terms=ACCEPTED)

    assert_equal(contents(target(project)), contents(source(project)))


@pytest.mark.parametrize("point", ["page.written", "page.checkpointed", "delete.written"])
def test_a_crash_while_it_is_taken_up_costs_nothing(project: commands.Project, point: str) -> None:
    _leave_a_copy(project)
    _diverge(project)
    made, _ = commands.plan_to_file(project, "0001", live=True)
    _crash_at(point)
    with pytest.raises(Crash):
        commands.apply(project, made, until=Phase.SHADOW_READ, terms=ACCEPTED)
    fill(source(project), [("foreign", game(300))])  # now it is no longer one

    points.hook = None
    commands.apply(project, made, until=Phase.CUT_OVER, terms=ACCEPTED)

    assert_equal(contents(target(project)), contents(source(project)))
    assert contents(target(project))["foreign"]["score"] == Int64(300)


def _crash_at(point: str) -> None:
    def crash(reached: str) -> None:
        if reached == point:
            raise Crash

    points.hook = crash


def test_where_keys_change_what_nothing_leads_to_goes(
    project: commands.Project, tmp_path: Path
) -> None:
    (tmp_path / "migrations" / "0001_rounds.py").write_text(REKEYED)
    with commands.Project(tmp_path / "migrator.toml", "test") as rekeyed:
        at = rekeyed.stores.get("new").collection("Game", At("new", "by_score"))
        fill(at, [(Int64(5), game(6)), (Int64(300), game(300))])
        made, _ = commands.plan_to_file(rekeyed, "0001", live=True)
        commands.apply(rekeyed, made, until=Phase.SHADOW_READ, terms=ACCEPTED)
        assert {key: game["id"] for key, game in contents(at).items()} == {
            Int64(n): str(n) for n in range(20)
        }
