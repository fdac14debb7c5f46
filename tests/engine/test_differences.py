"""Every difference of a full plan goes into a file beside it, and none stays in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator import commands
from migrator.errors import Failed, Interrupted, Refused
from migrator.planning.differences import beside, reading
from migrator.planning.file import read_plan
from migrator.planning.survey import SAMPLES
from tests.engine.games import fill, game, make_project, source, target

COUNT = 20


@pytest.fixture
def project(tmp_path: Path) -> Iterator[commands.Project]:
    with commands.Project(make_project(tmp_path), "test") as opened:
        yield opened


def differ(project: commands.Project, count: int, rounds: int = 3) -> None:
    """A target whose blocks all differ from the source's, and two that the source lacks."""
    fill(source(project), [(str(n), game(n, rounds)) for n in range(count)])
    other = [(str(n), game(n + 1, rounds)) for n in range(count)]
    fill(target(project), [*other, ("stranger", game(1)), ("another", game(2))])


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_all_are_beside_the_plan_and_samples_in_it(project: commands.Project) -> None:
    differ(project, COUNT)
    made, path = commands.plan_to_file(project, "0001", full=True)
    assert path == project.plan_path("0001")
    assert read_plan(path) == made
    (move,) = made.moves
    assert (move.change, move.delete, made.differences) == (COUNT, 2, COUNT + 2)
    assert len(move.samples) == SAMPLES
    lines = list(reading(path))
    assert {line.cls for line in lines} == {"Game"}
    told = {line.difference.key: line.difference for line in lines}
    assert len(told) == len(lines)
    assert {key for key, each in told.items() if each.change == "delete"} == {
        "Game:stranger", "Game:another",
    }  # fmt: skip
    seventh = told["Game:7"]
    assert [(line.sign, line.path) for line in seventh.entries] == [
        ("~", "rounds[0]"), ("~", "rounds[1]"), ("~", "rounds[2]"), ("~", ""),
    ]  # fmt: skip
    assert seventh.entries[3].detail == [
        "id: 8 (text) / 7 (text)", "score: 8 (int64) / 7 (int64)",
    ]  # fmt: skip
    assert names(path.parent) == {path.name, beside(path).name}


def test_without_differences_there_is_no_file(project: commands.Project) -> None:
    differ(project, COUNT)
    _, path = commands.plan_to_file(project, "0001", full=True)
    assert beside(path).exists()
    commands.plan_to_file(project, "0001")
    assert names(path.parent) == {path.name}
    commands.plan_to_file(project, "0001", full=True)
    target(project).drop()
    made, path = commands.plan_to_file(project, "0001", full=True)
    assert made.differences == 0
    assert names(path.parent) == {path.name}


def test_an_interrupted_plan_leaves_nothing(project: commands.Project) -> None:
    differ(project, COUNT)

    def stop(cls: str, done: int, of: int) -> None:
        raise Interrupted("stopped")

    with pytest.raises(Interrupted):
        commands.plan_to_file(project, "0001", full=True, progress=stop)
    assert names(project.plan_path("0001").parent) == set()


def test_an_interrupted_plan_leaves_an_earlier_one_whole(project: commands.Project) -> None:
    differ(project, COUNT)
    _, path = commands.plan_to_file(project, "0001", full=True)

    def stop(cls: str, done: int, of: int) -> None:
        raise Interrupted("stopped")

    with pytest.raises(Interrupted):
        commands.plan_to_file(project, "0001", progress=stop)
    assert read_plan(path).differences == len(list(reading(path))) == COUNT + 2


def test_a_folder_that_takes_no_file(project: commands.Project, tmp_path: Path) -> None:
    differ(project, 1)
    (tmp_path / "taken").write_text("")
    with pytest.raises(Failed, match="can't be written"):
        commands.plan_to_file(project, "0001", tmp_path / "taken" / "p.json", full=True)


def test_a_damaged_file_is_told(project: commands.Project) -> None:
    differ(project, 3)
    _, path = commands.plan_to_file(project, "0001", full=True)
    beside(path).write_bytes(b'{"cls": "Game"')
    with pytest.raises(Refused, match="can't be read"):
        list(reading(path))


def test_samples_are_made_by_a_plan_alone_too(project: commands.Project) -> None:
    differ(project, COUNT)
    made = commands.plan(project, "0001", full=True)
    assert made.differences == 0
    assert [sample.change for sample in made.moves[0].samples] == ["change"] * SAMPLES
