"""What must not be lost: leftovers, late writes, stale plans, half-done steps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator import commands
from migrator.engine import points
from migrator.errors import MigratorError, Refused, Waiting
from migrator.model.block import Aggregate, Block, cut
from migrator.model.canonical import equal
from migrator.model.phase import Phase
from migrator.model.value import Int64, Value
from migrator.planning import survey
from migrator.planning.file import encode_plan
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


def test_what_is_gone_from_the_source_leaves_quarantine(lenient: commands.Project) -> None:
    plan = commands.plan(lenient, "0001")
    terms = commands.Terms(accept={f.code for f in plan.to_accept})
    with pytest.raises(Waiting):
        commands.apply(lenient, plan, terms=terms)
    from migrator.model.block import Address

    source(lenient).delete([Address("deep")])
    assert commands.retry_quarantined(lenient, "0001") == (0, 0)
    assert commands.apply(lenient, plan, terms=terms).phase == "cut_over"


def test_a_half_done_finish_can_only_be_finished(
    project: commands.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands.apply(project, commands.plan(project, "0001"))

    class Killed(BaseException):
        pass

    def kill(point: str) -> None:
        if point == "finish.dropped":
            raise Killed

    monkeypatch.setattr(points, "hook", kill)
    with pytest.raises(Killed):
        commands.finish(project, "0001", keep_source=False)
    monkeypatch.setattr(points, "hook", None)
    for how in ({}, {"discard": True}, {"carry_back": True}):
        with pytest.raises(Refused, match="finish"):
            commands.rollback(project, "0001", **how)
    assert project.control.run("0001").primary == "target"
    assert commands.finish(project, "0001", keep_source=False).phase is Phase.FINISHED


def test_one_place_under_two_names_is_no_move(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    config.write_text(config.read_text().replace("new.db", "old.db"))
    script = tmp_path / "migrations" / "0001_rounds.py"
    script.write_text(script.read_text().replace("games_by_round", "games"))
    with commands.Project(config, "test") as project:
        fill(source(project), [(str(n), game(n)) for n in range(5)])
        with pytest.raises(Refused, match="same"):
            commands.plan(project, "0001")


SECOND = '''"""Later."""
from migrator import At, Move
revision, down_revision = "0002", "0001"
move = Move("Match", source=At("old", "games"), target=At("new", "matches"))
'''


def test_finish_keeps_what_a_later_revision_needs(project: commands.Project) -> None:
    commands.apply(project, commands.plan(project, "0001"))
    file = project.settings.migrations / "0002_later.py"
    file.write_text(SECOND)
    with commands.Project(project.settings.file, "test") as again:
        with pytest.raises(Refused, match="0002"):
            commands.finish(again, "0001", keep_source=False)
        assert len(contents(source(again))) == 50
        commands.finish(again, "0001", keep_source=True)


CHAINED = '''"""One into the other."""
from migrator import At, Move
revision, down_revision = "0001", None
moves = [
    Move("Game", source=At("old", "games"), target=At("new", "shared")),
    Move("Match", source=At("new", "shared"), target=At("new", "matches")),
]
'''


def test_moves_of_one_revision_keep_out_of_each_others_way(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    (tmp_path / "migrations" / "0001_rounds.py").write_text(CHAINED)
    with commands.Project(config, "test") as project:
        fill(source(project), [("1", game(1))])
        project.stores.get("new").collection("Match", project.moves("0001")[1].source).create()
        with pytest.raises(Refused, match="new:shared"):
            commands.plan(project, "0001")


def test_a_block_that_is_still_damaged_remains_in_quarantine(lenient: commands.Project) -> None:
    with lenient.stores.get("old").writing() as connection:  # type: ignore[attr-defined]
        connection.execute("INSERT INTO entries_1 VALUES ('foreign', '', x'c1', NULL)")
    plan = commands.plan(lenient, "0001")
    terms = commands.Terms(accept={f.code for f in plan.to_accept})
    with pytest.raises(Waiting, match="2 blocks"):
        commands.apply(lenient, plan, terms=terms)
    assert commands.retry_quarantined(lenient, "0001") == (0, 2)


BY_MAIL = '''"""Mail addresses as identifiers."""
from migrator import At, ChangeId, Move
revision, down_revision = "0001", None
move = Move("Game", source=At("old", "games"),
            target=At("new", "games_by_round", representation=["/Game/*/rounds[*]", "/Game/*"]),
            evolve=[ChangeId("mail", keep="oldId")])
'''


@pytest.fixture
def by_mail(tmp_path: Path) -> Iterator[commands.Project]:
    config = make_project(tmp_path)
    (tmp_path / "migrations" / "0001_rounds.py").write_text(BY_MAIL)
    with commands.Project(config, "test") as opened:
        fill(source(opened), [(str(n), {"mail": f"{n}@x"}) for n in range(5)])
        yield opened


def test_a_block_under_an_identifier_of_old_is_extra(by_mail: commands.Project) -> None:
    """The key that leads back is there, yet what lies there has another identifier by now."""
    commands.apply(by_mail, commands.plan(by_mail, "0001"), until=Phase.BACKFILLED)
    put(target(by_mail), "former@x", {"mail": "former@x", "oldId": "3"})
    (found,) = commands.verify_run(by_mail, "0001")
    assert [(told.key, told.what) for told in found.told] == [("Game:former@x", "extra")]
    commands.abort(by_mail, "0001", drop_target=False)
    plan = commands.plan(by_mail, "0001")
    assert plan.moves[0].delete == 1
    commands.apply(by_mail, plan, terms=commands.Terms(accept=["A107"]))
    assert "former@x" not in contents(target(by_mail))


def test_a_foreign_block_without_a_way_back_is_told(by_mail: commands.Project) -> None:
    commands.apply(by_mail, commands.plan(by_mail, "0001"), until=Phase.BACKFILLED)
    put(target(by_mail), "foreign", {"a": 1})
    (found,) = commands.verify_run(by_mail, "0001")
    assert [(told.key, told.what) for told in found.told] == [("Game:foreign", "extra")]


def test_two_sources_of_one_identifier_are_a_finding(by_mail: commands.Project) -> None:
    put(source(by_mail), "9", {"mail": "3@x"})
    plan = commands.plan(by_mail, "0001")
    assert [f.code for f in plan.errors] == ["E108"]
    with pytest.raises(Refused, match="E108"):
        commands.apply(by_mail, plan)


def test_a_key_of_another_kind_differs(
    project: commands.Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that answers for 7 to Int64(7) must not pass for one that kept the key."""
    put(source(project), 7, {"a": 1})
    commands.apply(project, commands.plan(project, "0001"), until=Phase.BACKFILLED)
    reader = type(target(project).observer())
    read = reader.read

    def lenient_read(self: object, ids: object) -> list[Block | None]:
        found = read(self, ids)  # type: ignore[arg-type]
        kept = self.at.collection == "games"  # type: ignore[attr-defined]
        return [Block(Int64(b.id), b.entries) if b and b.id == 7 and not kept else b for b in found]

    monkeypatch.setattr(reader, "match", lambda self, of: lenient_read(self, [b.id for b in of]))
    monkeypatch.setattr(reader, "read", lenient_read)
    (found,) = commands.verify_run(project, "0001")
    assert [told.paths for told in found.told] == [["(key): 7 (int32) / 7 (int64)"]]


OWN = '''"""An evolution of the script's own."""
from dataclasses import dataclass
from migrator import At, Move
from migrator.model.block import Aggregate
from migrator.model.evolution.base import Evolution, Laws
revision, down_revision = "0001", None
@dataclass(frozen=True)
class Mark(Evolution):
    laws = Laws()
    def describe(self): return "mark"
    def forward(self, old): return Aggregate(old.id, {**old.value, "mark": 1}, old.expires)
    def backward(self, new, old=None): return new
move = Move("Game", source=At("old", "games"), target=At("new", "marked"), evolve=[Mark()])
'''


def test_an_evolution_of_the_scripts_own_that_changed_makes_a_plan_stale(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    script = tmp_path / "migrations" / "0001_rounds.py"
    script.write_text(OWN)
    with commands.Project(config, "test") as project:
        fill(source(project), [("1", game(1))])
        plan = commands.plan(project, "0001")
    script.write_text(OWN.replace('"mark": 1', '"mark": 2'))
    with (
        commands.Project(config, "test") as project,
        pytest.raises(Refused, match="have changed"),
    ):
        commands.apply(project, plan)


RENAMED = '''"""A sensitive field gets another name."""
from migrator import At, Move, Rename
revision, down_revision = "0001", None
move = Move("Game", source=At("old", "games"), target=At("new", "games_by_round"),
            evolve=[Rename("email", "mail")], sensitive=["email"])
'''


def test_what_is_sensitive_stays_so_under_another_name(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    (tmp_path / "migrations" / "0001_rounds.py").write_text(RENAMED)
    with commands.Project(config, "test") as project:
        fill(source(project), [("1", {"email": "secret@new"})])
        fill(target(project), [("1", {"mail": "secret@old"})])
        plan = commands.plan(project, "0001", full=True)
        assert plan.moves[0].change == 1
        assert b"secret@" not in encode_plan(plan)


def test_what_is_damaged_is_not_carried_back(project: commands.Project) -> None:
    commands.apply(project, commands.plan(project, "0001"))
    with project.stores.get("new").writing() as connection:  # type: ignore[attr-defined]
        connection.execute("UPDATE entries_1 SET entry = 'rounds[7]' WHERE block = '3' AND"
                           " entry = 'rounds[0]'")  # fmt: skip
        connection.execute("UPDATE entries_1 SET value = x'c1' WHERE block = '4'")
    (found,) = commands.verify_run(project, "0001")
    assert sorted(told.key for told in found.told) == ["Game:3", "Game:4"]
    with pytest.raises(MigratorError, match=r"Game:[34] (is damaged|can.t be read)"):
        commands.rollback(project, "0001", carry_back=True)
    assert equal(contents(source(project))["3"], game(3))


def test_a_source_that_is_still_written_is_not_dropped(project: commands.Project) -> None:
    commands.apply(project, commands.plan(project, "0001"))
    put(source(project), "late", game(1))
    with pytest.raises(Refused, match="1 more than at the cut-over"):
        commands.finish(project, "0001", keep_source=False)
    assert "late" in contents(source(project))
    commands.finish(project, "0001", keep_source=True)
