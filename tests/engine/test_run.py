"""Runs: plans that went stale, locks, quarantine, rollback with and without later writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator import commands
from migrator.engine import points
from migrator.errors import Interrupted, Mismatch, Refused, Waiting
from migrator.model.block import Address, Aggregate, cut
from migrator.model.canonical import equal
from migrator.model.phase import Phase
from migrator.model.plan import Plan
from migrator.model.value import Value
from migrator.state import Lease
from tests.engine.games import (
    assert_equal,
    contents,
    fill,
    game,
    make_project,
    read_through,
    source,
    target,
)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return make_project(tmp_path)


@pytest.fixture
def project(config: Path) -> Iterator[commands.Project]:
    with commands.Project(config, "test") as opened:
        fill(source(opened), [(str(n), game(n)) for n in range(50)])
        yield opened


def put(collection: object, id: Value, record: dict[str, Value]) -> None:
    collection.write([cut(Aggregate(id, record), collection.at.rules("Game"))])  # type: ignore[attr-defined]


def test_the_plan_says_what_apply_then_does(project: commands.Project) -> None:
    fill(target(project), [("0", game(0)), ("1", game(7)), ("stranger", game(1))])
    plan = commands.plan(project, "0001", full=True)
    move = plan.moves[0]
    assert (move.create, move.change, move.delete, move.leave) == (48, 1, 1, 1)
    changed = next(s for s in move.samples if s.change == "change")
    assert changed.key == "Game:1"
    assert {line.path: line.sign for line in changed.entries} == {
        "": "~", "rounds[0]": "~", "rounds[1]": "~", "rounds[2]": "~",
    }  # fmt: skip
    assert [f.code for f in plan.to_accept] == ["A107"]
    with pytest.raises(Refused, match="A107") as refused:
        commands.apply(project, plan)
    assert "--accept A107" in refused.value.hint
    assert project.control.runs() == []
    commands.apply(project, plan, terms=commands.Terms(accept=["A107"]))
    assert_equal(contents(target(project)), contents(source(project)))


def test_a_second_apply_has_nothing_to_do(project: commands.Project) -> None:
    plan = commands.plan(project, "0001")
    assert commands.apply(project, plan).phase == "cut_over"
    again = commands.apply(project, plan)
    assert again.phase == "cut_over"
    assert again.verified == []


def test_until_stops_at_a_phase_and_goes_on_from_there(project: commands.Project) -> None:
    plan = commands.plan(project, "0001")
    for phase in ("prepared", "dual_write", "backfilled", "shadow_read", "cut_over"):
        assert commands.apply(project, plan, until=Phase(phase)).phase == phase


def test_a_changed_script_makes_a_plan_stale(project: commands.Project, config: Path) -> None:
    plan = commands.plan(project, "0001")
    script = config.parent / "migrations" / "0001_rounds.py"
    script.write_text(script.read_text().replace('"/Game/*"]', '"/Game/*/*"]'))
    with commands.Project(config, "test") as changed, pytest.raises(Refused, match="changed"):
        commands.apply(changed, plan)


def test_a_comment_does_not_make_a_plan_stale(project: commands.Project, config: Path) -> None:
    plan = commands.plan(project, "0001")
    script = config.parent / "migrations" / "0001_rounds.py"
    script.write_text(script.read_text() + "# a comment\n")
    with commands.Project(config, "test") as changed:
        assert commands.apply(changed, plan).phase == "cut_over"


def test_a_plan_of_another_environment_is_refused(project: commands.Project) -> None:
    plan = commands.plan(project, "0001")
    foreign = Plan(**{f: getattr(plan, f) for f in plan.__struct_fields__} | {"env": "production"})
    with pytest.raises(Refused, match="production"):
        commands.apply(project, foreign)


def test_two_applies_of_one_run_exclude_each_other(project: commands.Project) -> None:
    plan = commands.plan(project, "0001")
    with (
        Lease(project.control, "test/0001"),
        pytest.raises(Refused, match="in the hands of"),
    ):
        commands.apply(project, plan)


def test_a_stopped_run_goes_on(project: commands.Project) -> None:
    plan = commands.plan(project, "0001")
    stop = threading.Event()
    stop.set()
    with pytest.raises(Interrupted):
        commands.apply(project, plan, stop=stop)
    assert commands.apply(project, plan).phase == "cut_over"


def test_a_class_has_one_unfinished_move(project: commands.Project, config: Path) -> None:
    commands.apply(project, commands.plan(project, "0001"), until=Phase.PREPARED)
    second = config.parent / "migrations" / "0002_etf.py"
    second.write_text(
        '"""ETF."""\nfrom migrator import At, Move\nrevision, down_revision = "0002", "0001"\n'
        'move = Move("Game", target=At("new", "games_etf", representation=["/Game/*/*"]))\n'
    )
    with commands.Project(config, "test") as changed:
        with pytest.raises(Refused, match="builds on 0001"):
            commands.apply(changed, commands.plan(changed, "0002"))
        changed.control.stamps()


def test_a_rollback_without_later_writes_just_flips(project: commands.Project) -> None:
    plan = commands.plan(project, "0001")
    commands.apply(project, plan)
    assert commands.rollback(project, "0001").primary == "source"
    assert commands.apply(project, plan).primary == "target"
    assert commands.rollback(project, "0001").phase == "shadow_read"


def test_a_rollback_does_not_lose_later_writes(project: commands.Project) -> None:
    commands.apply(project, commands.plan(project, "0001"))
    later = game(3, rounds=9)
    put(target(project), "3", later)
    put(target(project), "born", game(99))
    target(project).delete([Address("5")])
    with pytest.raises(Refused, match="3 blocks were written since the cut-over"):
        commands.rollback(project, "0001")
    assert project.control.run("0001").primary == "target"
    commands.rollback(project, "0001", carry_back=True)
    now = contents(source(project))
    assert equal(now["3"], later)
    assert "born" in now
    assert "5" not in now
    assert_equal(now, contents(target(project)))


def test_a_rollback_can_give_later_writes_up(project: commands.Project) -> None:
    commands.apply(project, commands.plan(project, "0001"))
    put(target(project), "3", game(3, rounds=9))
    assert commands.rollback(project, "0001", discard=True).primary == "source"
    assert equal(contents(source(project))["3"], game(3))
    with pytest.raises(Mismatch, match="1 blocks differ"):
        commands.apply(project, commands.plan(project, "0001"))


def test_what_is_not_cut_over_can_not_be_rolled_back_or_finished(
    project: commands.Project,
) -> None:
    commands.apply(project, commands.plan(project, "0001"), until=Phase.BACKFILLED)
    with pytest.raises(Refused, match="no cut-over"):
        commands.rollback(project, "0001")
    with pytest.raises(Refused, match="not cut over"):
        commands.finish(project, "0001", keep_source=False)
    assert source(project).exists()


def test_abort_is_refused_while_the_target_is_primary(project: commands.Project) -> None:
    commands.apply(project, commands.plan(project, "0001"))
    with pytest.raises(Refused, match="only primary copy"):
        commands.abort(project, "0001", drop_target=True)
    assert target(project).exists()


def test_abort_keeps_a_target_that_held_blocks_before(project: commands.Project) -> None:
    fill(target(project), [("0", game(0))])
    commands.apply(project, commands.plan(project, "0001"), until=Phase.BACKFILLED)
    with pytest.raises(Refused, match="held blocks before"):
        commands.abort(project, "0001", drop_target=True)
    assert commands.abort(project, "0001", drop_target=False).phase is Phase.ABORTED
    assert len(contents(target(project))) == 50


def test_finish_drops_the_source_or_keeps_it(project: commands.Project) -> None:
    commands.apply(project, commands.plan(project, "0001"))
    commands.finish(project, "0001", keep_source=False)
    assert not source(project).exists()
    with pytest.raises(Refused, match="finished"):
        commands.rollback(project, "0001")
    assert [(c.cls, c.at) for c in commands.current(project)] == [("Game", "new:games_by_round")]


DEEP: Value = 0
for _ in range(600):
    DEEP = [DEEP]


def test_a_block_that_does_not_fit_is_refused_by_the_plan(project: commands.Project) -> None:
    _put_deep(project)
    plan = commands.plan(project, "0001")
    assert [(f.severity, f.keys) for f in plan.errors] == [("error", ["Game:deep"])]
    with pytest.raises(Refused, match="Game:deep"):
        commands.apply(project, plan)
    assert not target(project).exists()


def _put_deep(project: commands.Project) -> None:
    """A block whose stored value is damaged, behind the store's back."""
    with project.stores.get("old").writing() as connection:  # type: ignore[attr-defined]
        connection.execute(
            "INSERT INTO entries_1 VALUES ('deep', 'rounds[5]', x'c0', NULL)",
        )


def test_quarantine_takes_what_does_not_fit_and_lets_it_go_again(tmp_path: Path) -> None:
    config = make_project(tmp_path, oversize="quarantine")
    with commands.Project(config, "test") as project:
        fill(source(project), [(str(n), game(n)) for n in range(50)])
        _put_deep(project)
        plan = commands.plan(project, "0001")
        (code,) = {f.code for f in plan.to_accept}
        terms = commands.Terms(accept=[code])
        with pytest.raises(Waiting, match="1 blocks are in quarantine: Game:deep"):
            commands.apply(project, plan, terms=terms)
        assert [q.shown for q in commands.quarantine(project, "0001")] == ["Game:deep"]
        assert commands.status(project)[0].quarantined == 1
        assert commands.retry_quarantined(project, "0001") == (0, 1)
        put(source(project), "deep", game(5))
        assert commands.retry_quarantined(project, "0001") == (1, 0)
        assert commands.apply(project, plan, terms=terms).phase == "cut_over"
        assert_equal(contents(target(project)), contents(source(project)))


def test_quarantined_keys_are_accepted_by_name(tmp_path: Path) -> None:
    config = make_project(tmp_path, oversize="quarantine")
    with commands.Project(config, "test") as project:
        fill(source(project), [(str(n), game(n)) for n in range(5)])
        _put_deep(project)
        plan = commands.plan(project, "0001")
        swap = commands.SwapTerms(why="nobody plays it")
        terms = commands.Terms(accept=["E102"], accept_keys=["Game:deep"], swap=swap)
        assert commands.apply(project, plan, terms=terms).verified[0].quarantined == 1
        events = {e["event"]: e["detail"] for e in commands.events(project, "0001")}
        (reason,) = {q.reason for q in commands.quarantine(project, "0001")}
        assert events["accepted keys"] == {
            "keys": ["Game:deep"],
            "found": [reason],
            "why": "nobody plays it",
        }
        assert events["accepted"]["codes"] == ["E102"]
        assert events["accepted"]["found"] == [f.text for f in plan.to_accept]
        assert events["accepted"]["why"] == "nobody plays it"
        put(target(project), "born", game(9))
        commands.rollback(project, "0001", carry_back=True)
        assert len(source(project).keys(source(project).split(1)[0], None, 100)[0]) == 7


@pytest.mark.parametrize("work", ["verify", "verify sum"])
def test_an_interrupted_verification_goes_on_where_it_was(
    project: commands.Project, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if work == "verify sum":
        read_through(monkeypatch)
    fill(source(project), [(f"more-{n:05}", game(n)) for n in range(2500)])
    plan = commands.plan(project, "0001")
    commands.apply(project, plan, until=Phase.BACKFILLED)
    seen = 0

    def hook(point: str) -> None:
        nonlocal seen
        seen += point == "verify.checkpointed"
        if seen == 2:
            raise Interrupted("stopped by the test")

    points.hook = hook
    try:
        with pytest.raises(Interrupted):
            commands.apply(project, plan, terms=commands.Terms(workers=1))
        run = project.control.run("0001")
        before = sum(t.counts.get("equal", 0) for t in project.control.tasks(run.id, 0, work))
        assert 0 < before < 2550
        pages = []
        points.hook = pages.append
        (found,) = commands.apply(project, plan, terms=commands.Terms(workers=1)).verified
    finally:
        points.hook = None
    assert (found.equal, found.clean) == (2550, True)
    (whole,) = commands.verify_run(project, "0001")
    assert whole.equal == 2550
    # Two ranges of two pages each, forth and back; the first two pages were not read again.
    assert pages.count("verify.checkpointed") == 8 - 2
    assert project.control.tasks(run.id, 0, work) == []
