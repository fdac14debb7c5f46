"""What the target does not take goes to the archive: counted, verified, brought back, kept."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator import commands
from migrator.errors import Mismatch, Refused
from migrator.model.block import Address, Aggregate, cut
from migrator.model.move import At
from migrator.model.phase import Phase
from migrator.model.plan import Plan
from migrator.model.value import Set
from tests.engine.archiving import (
    BOTH,
    LEFT,
    SOURCE,
    TARGET,
    WHOLE,
    collection,
    expected,
    game,
    kept,
    moved,
    put,
    write_project,
)
from tests.engine.games import assert_equal, contents
from tests.engine.test_kill import in_child

GAMES = 60
TERMS = commands.Terms(accept=["E103"])


@pytest.fixture
def project(tmp_path: Path) -> Iterator[commands.Project]:
    with commands.Project(write_project(tmp_path), "test") as opened:
        put(collection(opened, SOURCE), {str(n): game(n) for n in range(GAMES)})
        yield opened


def check(project: commands.Project, games: int = GAMES) -> None:
    target, archive = expected(games)
    assert_equal(contents(collection(project, TARGET)), target)
    assert_equal(contents(collection(project, LEFT)), archive)


def planned(project: commands.Project) -> Plan:
    return commands.plan(project, "0001")


def test_a_move_with_an_archive_is_carried_out_at_rest(project: commands.Project) -> None:
    made = commands.plan(project, "0001", live=True)
    assert "E132" in [found.code for found in made.errors]
    with pytest.raises(Refused, match="E132"):
        commands.apply(project, made, terms=TERMS)


def test_a_plan_counts_what_the_archive_gets_and_apply_does_exactly_that(
    project: commands.Project,
) -> None:
    plan = planned(project)
    (move,) = plan.moves
    assert move.archive is not None
    assert (move.create, move.archive.blocks, move.archive.parts) == (54, 6, 39)
    (finding,) = [f for f in plan.findings if f.code == "E103"]
    assert (finding.severity, finding.count) == ("accept", 6)
    assert "go to the archive cold:left" in finding.text
    with pytest.raises(Refused, match="E103"):
        commands.apply(project, plan)
    applied = commands.apply(project, plan, terms=TERMS)
    assert applied.phase == "cut_over"
    (found,) = applied.verified
    assert (found.read, found.equal, found.archived, found.parts) == (60, 54, 6, 39)
    events = {e["event"]: e["detail"] for e in commands.events(project, "0001")}
    copied = events["copied"]
    assert isinstance(copied, dict)
    assert (copied["read"], copied["create"], copied["archived"], copied["parts"]) == (
        60, 54, 6, 39,
    )  # fmt: skip
    assert "not as planned" not in events
    check(project)


def test_nothing_is_written_to_an_archive_before_the_findings_were_accepted(
    project: commands.Project,
) -> None:
    with pytest.raises(Refused):
        commands.apply(project, planned(project))
    assert not collection(project, LEFT).exists()


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        ("change whole", "Game:3 differs"),
        ("change part", "Game:1 differs"),
        ("lose whole", "Game:3 missing"),
        ("lose part", "Game:1 missing"),
        ("stranger", "Game:nobody extra"),
        ("needless part", "Game:4 extra"),
        ("archive what was moved", "Game:4 extra"),
    ],
)
def test_verification_finds_whatever_is_wrong_in_an_archive(
    project: commands.Project, spoil: str, what: str
) -> None:
    plan = planned(project)
    commands.apply(project, plan, until=Phase.BACKFILLED, terms=TERMS)
    archive = collection(project, LEFT)
    match spoil:
        case "change whole":
            put(archive, {"3": game(3) | {"score": "about 4"}})
        case "change part":
            put(archive, {"1": kept(5)})
        case "lose whole":
            archive.delete([Address("3")])
        case "lose part":
            archive.delete([Address("1")])
        case "stranger":
            put(archive, {"nobody": game(9)})
        case "needless part":
            put(archive, {"4": kept(5)})
        case "archive what was moved":
            put(archive, {"4": game(4)})
    with pytest.raises(Mismatch):
        commands.apply(project, plan, terms=TERMS)
    (found,) = commands.verify_run(project, "0001")
    assert what in [f"{told.key} {told.what}" for told in found.told]
    assert not found.clean


def test_a_rollback_carries_back_and_leaves_source_and_archive_as_they_belong(
    project: commands.Project,
) -> None:
    commands.apply(project, planned(project), terms=TERMS)
    target = collection(project, TARGET)
    put(target, {"1": moved(1) | {"score": 111}, "3": moved(3), "born": moved(7)})
    target.delete([Address("2")])
    with pytest.raises(Refused, match="written since the cut-over"):
        commands.rollback(project, "0001")
    commands.rollback(project, "0001", carry_back=True)
    source = contents(collection(project, SOURCE))
    assert source["1"] == game(1) | {"score": "111"}
    assert source["3"] == moved(3)
    assert source["born"] == moved(7)
    assert "2" not in source
    assert source["13"] == game(13)
    archive = contents(collection(project, LEFT))
    assert archive.keys() == expected(GAMES)[1].keys() - {"2", "3"}
    (found,) = commands.verify_run(project, "0001")
    assert (found.clean, found.archived) == (True, 5)
    assert commands.apply(project, commands.frozen_plan(project.control.run("0001"))).phase == (
        "cut_over"
    )


def test_what_the_source_has_lost_comes_back_from_the_archive(project: commands.Project) -> None:
    commands.apply(project, planned(project), terms=TERMS)
    source = collection(project, SOURCE)
    before = contents(source)
    source.delete([Address("1"), Address("6")])
    commands.rollback(project, "0001", carry_back=True)
    found = contents(source)
    # A score that became a number stays one: nothing says that it was text.
    assert found["1"] == before["1"] | {"score": 1}
    assert found["6"] == before["6"] | {"score": 6}
    assert found.keys() == before.keys()


def test_a_rollback_without_later_writes_leaves_the_source_untouched(
    project: commands.Project,
) -> None:
    before = contents(collection(project, SOURCE))
    commands.apply(project, planned(project), terms=TERMS)
    commands.rollback(project, "0001")
    assert_equal(contents(collection(project, SOURCE)), before)
    check(project)


@pytest.mark.parametrize("drop", [True, False])
def test_an_abort_takes_the_archive_away_so_that_one_can_plan_again(
    project: commands.Project, drop: bool
) -> None:
    commands.apply(project, planned(project), until=Phase.BACKFILLED, terms=TERMS)
    commands.abort(project, "0001", drop_target=drop)
    assert not collection(project, LEFT).exists()
    assert collection(project, TARGET).exists() is not drop
    plan = planned(project)
    assert [f.code for f in plan.errors] == []
    assert plan.moves[0].leave == (0 if drop else 54)
    assert plan.blocks > 0
    commands.apply(project, plan, terms=TERMS)
    check(project)


def test_finish_drops_the_source_and_keeps_the_archive(project: commands.Project) -> None:
    commands.apply(project, planned(project), terms=TERMS)
    commands.finish(project, "0001", keep_source=False)
    assert not collection(project, SOURCE).exists()
    check(project)


def test_an_archive_that_holds_blocks_is_refused_by_plan_and_apply(
    project: commands.Project,
) -> None:
    collection(project, LEFT).create()
    plan = planned(project)
    put(collection(project, LEFT), {"of another revision": game(1)})
    with pytest.raises(Refused, match="an archive must be empty"):
        commands.apply(project, plan, terms=TERMS)
    assert [f.code for f in planned(project).errors] == ["E119"]


def test_what_can_not_be_read_is_no_case_for_an_archive(project: commands.Project) -> None:
    with project.stores.get("old").writing() as connection:  # type: ignore[attr-defined]
        connection.execute("UPDATE entries_1 SET value = x'c1' WHERE block = '3'")
    plan = planned(project)
    assert [f.code for f in plan.errors] == ["E101"]


def test_a_block_that_would_pass_for_a_part_is_an_error(tmp_path: Path) -> None:
    more = WHOLE.replace('"score"', '"_dropped"')
    with commands.Project(write_project(tmp_path, more), "test") as project:
        put(collection(project, SOURCE), {"odd": {"_dropped": "x"}, "even": {"_dropped": "1"}})
        (error,) = planned(project).errors
        assert (error.code, error.keys) == ("E118", ["Game:odd"])


def test_a_block_that_the_archive_can_not_cut_is_an_error(tmp_path: Path) -> None:
    with commands.Project(write_project(tmp_path), "test") as project:
        put(collection(project, SOURCE), {"odd": {"score": "x", "notes": Set(["a"])}})
        (error,) = planned(project).errors
        assert (error.code, error.keys) == ("E118", ["Game:odd"])


def test_a_target_that_held_an_older_copy_of_an_archived_block_loses_it(
    project: commands.Project,
) -> None:
    put(collection(project, TARGET), {"3": moved(3), "4": moved(4), "5": moved(6)})
    plan = planned(project)
    assert (plan.moves[0].leave, plan.moves[0].change) == (1, 1)
    commands.apply(project, plan, terms=TERMS)
    check(project)


def test_a_block_that_becomes_several_is_archived_whole(tmp_path: Path) -> None:
    more = (
        'of="Match", evolve=[SplitOut("notes", back="match", place="n", key="{match}-{n}"), '
        'Convert("by", Integer)], oversize="archive", archive=At("cold", "left")'
    )
    with commands.Project(write_project(tmp_path, more), "test") as project:
        source = project.stores.get("old").collection("Match", SOURCE)
        source.create()
        for name, by in (("fits", ["1", "2"]), ("not", ["1", "x"]), ("none", [])):
            value = {"notes": [{"by": each} for each in by]}
            source.write([cut(Aggregate(name, value), SOURCE.rules("Match"))])
        plan = planned(project)
        (move,) = plan.moves
        assert move.archive is not None
        assert (move.create, move.archive.blocks) == (2, 1)
        terms = commands.Terms(accept=["E103", "A117"])
        (found,) = commands.apply(project, plan, terms=terms).verified
        assert (found.equal, found.archived, found.clean) == (2, 1, True)
        left = project.stores.get("cold").collection("Match", At("cold", "left"))
        assert contents(left) == {"not": {"notes": [{"by": "1"}, {"by": "x"}]}}
        target = collection(project, TARGET)
        assert contents(target).keys() == {"fits-0", "fits-1"}
        target.delete([Address("fits-1")])
        commands.rollback(project, "0001", carry_back=True)
        assert contents(source)["not"] == {"notes": [{"by": "1"}, {"by": "x"}]}
        assert contents(left).keys() == {"not"}


def test_made_keys_find_their_archived_blocks(tmp_path: Path) -> None:
    more = (
        'evolve=[ReKey("G#{}"), Convert("score", Integer)], '
        'oversize="archive", archive=At("cold", "left")'
    )
    with commands.Project(write_project(tmp_path, more), "test") as project:
        put(collection(project, SOURCE), {str(n): game(n) for n in range(GAMES)})
        plan = planned(project)
        (found,) = commands.apply(project, plan, terms=TERMS).verified
        assert (found.equal, found.archived) == (54, 6)
        put(collection(project, TARGET), {"G#3": moved(3)})
        with pytest.raises(Refused, match=r"G#3"):
            commands.rollback(project, "0001")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (BOTH.partition(", archive=At")[0], "nothing says where to"),
        ('evolve=[Drop("notes", archive=True)]', "drop notes .archived.: nothing says where to"),
        ('archive=At("cold", "left")', "nothing would go into its archive"),
        ('oversize="archive", archive="cold"', "archive must be At"),
        (
            'oversize="archive", archive=At("cold", "left", ["/Game/*/notes"])',
            "leave something over",
        ),
        ('oversize="archive", archive=At("warm", "left")', "'warm' is no store"),
        ('oversize="archive", archive=At("cold", tables("left"))', "which tables"),
        (
            'of="Note", evolve=[Bucket("notes", by={"by": "by"}, keep="id")], '
            'oversize="archive", archive=At("cold", "left")',
            "can't be archived as they lie",
        ),
        (
            'of="Match", evolve=[SplitOut("notes", back="match", keep="id"), '
            'Drop("text", archive=True)], archive=At("cold", "left")',
            "what is left out of parts",
        ),
    ],
)
def test_what_makes_no_sense_of_an_archive_is_refused_when_it_is_loaded(
    tmp_path: Path, more: str, words: str
) -> None:
    with (
        commands.Project(write_project(tmp_path, more), "test") as project,
        pytest.raises(Refused, match=words),
    ):
        commands.plan(project, "0001")


@pytest.mark.parametrize("at", ['At("old", "games")', 'At("new", "games")'])
def test_an_archive_lies_apart_from_source_and_target(tmp_path: Path, at: str) -> None:
    more = WHOLE.replace('At("cold", "left")', at)
    with (
        commands.Project(write_project(tmp_path, more), "test") as project,
        pytest.raises(Refused, match=r"same place|something else"),
    ):
        commands.plan(project, "0001")


POINTS = ("prepare.created", "backfill.written", "backfill.archived", "backfill.checkpointed")


@pytest.mark.parametrize("occupied", [False, True])
@pytest.mark.parametrize("point", [*POINTS, "verify.checkpointed"])
def test_a_run_with_an_archive_goes_on_after_kill_9(
    tmp_path: Path, point: str, occupied: bool
) -> None:
    config = write_project(tmp_path)
    games = 2_400
    with commands.Project(config, "test") as project:
        put(collection(project, SOURCE), {str(n): game(n) for n in range(games)})
        if occupied:
            put(collection(project, TARGET), {str(n): moved(n + n % 2) for n in range(0, games, 3)})

    def apply(project: commands.Project) -> None:
        run = commands.unfinished(project, "0001")
        plan = commands.frozen_plan(run) if run else planned(project)
        commands.apply(project, plan, terms=TERMS)

    status = in_child(config, apply, point, 1)
    assert os.WIFSIGNALED(status), f"{point} was not reached"
    assert os.WTERMSIG(status) == signal.SIGKILL
    with commands.Project(config, "test") as project:
        apply(project)
        check(project, games)
        events = [e for e in commands.events(project, "0001") if e["event"] == "copied"]
        copied = events[-1]["detail"]
        assert isinstance(copied, dict)
        (move,) = commands.frozen_plan(project.control.run("0001")).moves
        assert move.archive is not None
        assert [copied[n] for n in ("create", "change", "leave", "archived", "parts")] == [
            move.create, move.change, move.leave, move.archive.blocks, move.archive.parts,
        ]  # fmt: skip
        assert (move.archive.blocks, move.change > 0) == (240, occupied)
