"""The epoch in both stores: a control database of the past, or a second one, makes no second
primary (R15)."""

from __future__ import annotations

import os
import queue
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from migrator import commands
from migrator.commands import SwapTerms, repairing
from migrator.engine import points
from migrator.engine.epochs import Epochs, Kept
from migrator.errors import Interrupted, MigratorError, Refused, Terminal, Transient, Waiting
from migrator.gateway import Gateway, Stopped
from migrator.journal import Note, note_of
from migrator.model.block import Block
from migrator.model.epoch import from_text, to_text
from migrator.model.phase import Phase
from migrator.outbox import FileNote
from migrator.planning.file import decode_plan
from migrator.state import Lease, LiveState, Position
from migrator.state.gateways import Gateways
from tests.ending import PATIENCE, joined, waited
from tests.engine.games import SETTINGS, contents, fill, game, make_project, source, target
from tests.gateway.kit import HASTY, QUICK, unseen, until

TERMS = SwapTerms(bound=60, lag=60)
QUICKLY = "[env.test]\nrequest_life = 0.3\n"
REPAIR = "migrator repair 0001"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No gateway has a lease for longer here."""
    monkeypatch.setattr(repairing, "LEASE", 0.1)


@dataclass
class Live:
    """A live move between two files, compared and not cut over; ``config`` is of its project."""

    config: Path

    def open(self) -> commands.Project:
        return commands.Project(self.config, "test")

    @property
    def control(self) -> Path:
        with self.open() as project:
            file = project.control.engine.url.database
        assert file is not None
        return Path(file)

    def copy_control(self, to: Path) -> Path:
        with closing(sqlite3.connect(self.control)) as here, closing(sqlite3.connect(to)) as there:
            here.backup(there)
        return to

    def restore_control(self, backup: Path) -> None:
        with closing(sqlite3.connect(backup)) as here, closing(sqlite3.connect(self.control)) as to:
            here.backup(to)

    def twin(self) -> Live:
        """A second project over a copy of the control database, and over the same stores."""
        twin = self.config.with_name("twin.toml")
        twin.write_text(f'{QUICKLY}control = "sqlite:///twin.db"\n{SETTINGS}')
        self.copy_control(self.config.with_name("twin.db"))
        return Live(twin)

    def swap(self, to: str = "target") -> commands.Applied:
        with self.open() as project:
            do = commands.cutover if to == "target" else commands.rollback
            return do(project, "0001", swap=TERMS)

    def put(self, key: str) -> None:
        """A write by a gateway, which follows the phase."""
        with Gateway.open("Game", self.config, "test", terms=QUICK) as games:
            games.put(key, {"id": key})

    @property
    def run(self) -> tuple[str, int, str]:
        with self.open() as project:
            run = project.control.run("0001")
        return run.primary, run.epoch, run.fence

    @property
    def told(self) -> float:
        """When the mirror last said something."""
        with self.open() as project:
            return LiveState(project.control, project.control.run("0001").id).told()[0]

    def notes(self) -> list[Note]:
        with self.open() as project:
            found = [note_of(end(project)) for end in (source, target)]
        assert all(found)
        return [note for note in found if note is not None]

    @property
    def epochs(self) -> list[tuple[int, str] | None]:
        """What both stores hold, the source first."""
        held = [note.read() for note in self.notes()]
        read = [None if text is None else from_text(text) for text in held]
        return [None if each is None else (each.number, each.primary) for each in read]

    def sides(self) -> list[set[object]]:
        with self.open() as project:
            return [set(contents(end(project))) for end in (source, target)]


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    live = Live(make_project(tmp_path))
    live.config.write_text(QUICKLY + SETTINGS)
    with live.open() as project:
        fill(source(project), ((str(n), game(n)) for n in range(5)))
        made, _ = commands.plan_to_file(project, "0001", live=True)
        commands.apply(project, made, until=Phase.SHADOW_READ)
    yield live
    points.hook = None


def test_both_stores_hold_the_epoch_as_long_as_the_move_lasts(live: Live) -> None:
    assert live.epochs == [(1, "source"), (1, "source")]
    live.swap()
    assert live.epochs == [(2, "target"), (2, "target")]
    live.put("new")
    live.swap("source")
    assert live.epochs == [(3, "source"), (3, "source")]
    with live.open() as project:
        commands.abort(project, "0001", drop_target=True)
    assert live.epochs == [None, None]
    with closing(sqlite3.connect(live.config.with_name("old.db"))) as c:
        left = c.execute("SELECT name FROM sqlite_master WHERE name LIKE 'migrator%'").fetchall()
    assert left == []


def test_a_control_database_of_the_past_moves_nothing(live: Live) -> None:
    backup = live.copy_control(live.config.with_name("backup.db"))
    live.swap()
    live.put("new")
    live.restore_control(backup)
    assert live.run == ("source", 1, "")
    asked: list[Callable[[commands.Project], object]] = [
        lambda project: commands.mirror(project, "0001"),
        lambda project: commands.cutover(project, "0001", swap=TERMS),
        lambda project: commands.abort(project, "0001", drop_target=False),
    ]
    for ask in asked:
        with live.open() as project, pytest.raises(Refused, match="epoch 2, primary target") as e:
            ask(project)
        assert REPAIR in e.value.hint
    with pytest.raises(Refused, match="epoch 2, primary target") as e:
        live.put("lost")
    assert REPAIR in e.value.hint
    assert "lost" not in live.sides()[0]
    with live.open() as project:
        # What was refused is not done later, when nobody looks.
        assert commands.inspect(project, "0001").asked == ""


def test_a_copy_from_between_two_swaps_is_found_out_by_the_number_of_the_attempt(
    live: Live,
) -> None:
    backup = live.copy_control(live.config.with_name("backup.db"))
    with live.open() as project:
        rehearsal = SwapTerms(bound=60, lag=60, dry_run=True)
        commands.cutover(project, "0001", swap=rehearsal)
    live.restore_control(backup)
    with live.open() as project, pytest.raises(Refused, match="swap 1 was begun there"):
        commands.cutover(project, "0001", swap=TERMS)


def test_a_new_control_database_writes_nothing_that_another_runs(live: Live) -> None:
    live.swap()
    live.control.unlink()
    with pytest.raises(Refused, match=r"run 0001-.* is under way there") as e:
        live.put("lost")
    assert REPAIR in e.value.hint
    with live.open() as project:
        made = commands.plan(project, "0001", live=True)
        with pytest.raises(MigratorError):
            commands.apply(project, made, until=Phase.SHADOW_READ)
    assert live.epochs == [(2, "target"), (2, "target")]


# ---------------------------------------------------------------------- two coordinators


def at(point: str, act: Callable[[], object]) -> None:
    """Do something once, when the engine comes to a point."""

    def hook(reached: str) -> None:
        if reached == point:
            points.hook = None
            act()

    points.hook = hook


def test_of_two_coordinators_the_one_that_was_overtaken_undoes(live: Live) -> None:
    twin = live.twin()
    at("swap.armed", twin.swap)
    with pytest.raises(Refused, match="another owner, of another control database"):
        live.swap()
    assert live.run == ("source", 1, "")
    assert twin.run == ("target", 2, "")
    # Nobody may write by the one that lost: its gateways are told, and the mirror's file has a
    # fence of its own.
    with pytest.raises(Refused, match="epoch 2, primary target"):
        live.put("lost")
    twin.put("new")
    assert "lost" not in live.sides()[0]


def test_a_flip_that_another_overtook_lets_nobody_write(live: Live) -> None:
    at("swap.flipped", lambda: overtake(live))
    with pytest.raises(Refused, match="another owner"):
        live.swap()
    assert live.run == ("target", 2, "flipped")  # gateways wait, whatever they know
    with pytest.raises(Stopped), Gateway.open("Game", live.config, "test", terms=HASTY) as games:
        games.put("lost", {"id": "lost"})


@pytest.mark.usefixtures("quick")
def test_what_was_written_by_who_overtook_a_flip_is_kept(live: Live) -> None:
    twin = live.twin()

    def overtakes() -> None:
        """Asked twice, and then to rehearse: so the old primary is written on."""
        with twin.open() as project:
            state = LiveState(project.control, project.control.run("0001").id)
            state.release(state.arm(project.control.run("0001")))
            rehearsal = SwapTerms(bound=60, lag=60, dry_run=True)
            commands.cutover(project, "0001", swap=rehearsal)
        twin.put("late")

    at("swap.flipped", overtakes)
    with pytest.raises(Refused, match="another owner"):
        live.swap()
    assert live.run == ("target", 2, "flipped")
    with live.open() as project, pytest.raises(Refused, match="swap 2 was begun there"):
        commands.mirror(project, "0001")
    with live.open() as project:
        found = commands.inspect(project, "0001")
        assert (found.state, len(found.choices)) == ("divided", 1)
        assert "epoch 3, primary source" in found.choices[0].does
        with pytest.raises(Refused, match="is no way on"):
            commands.repair(project, "0001", "go-on")
    rebuilt(live)
    assert live.run == ("source", 3, "")
    assert_goes_on(live, "source")
    assert "late" in live.sides()[1]


def overtake(live: Live) -> None:
    """Claim the swap for an owner of another control database."""
    for note in live.notes():
        text = note.read()
        held = None if text is None else from_text(text)
        assert held is not None
        assert note.change(text, to_text(replace(held, attempt=2, by="another")))


def test_a_mirror_at_work_stops_when_another_owner_claims_a_swap(live: Live) -> None:
    stop, ended = threading.Event(), queue.SimpleQueue[MigratorError]()

    def works() -> None:
        with live.open() as project:
            try:
                commands.mirror(project, "0001", stop=stop)
            except MigratorError as error:
                ended.put(error)

    before = live.told
    mirror = threading.Thread(target=works)
    mirror.start()
    try:
        until(lambda: live.told != before, 60)
        overtake(live)
        error = ended.get(timeout=60)
    finally:
        stop.set()
        joined(mirror)
    assert isinstance(error, Refused)
    assert REPAIR in error.hint


def test_a_gateway_that_was_open_stops_when_another_control_database_flips(live: Live) -> None:
    live.put("before")
    with Gateway.open("Game", live.config, "test", terms=HASTY) as games:
        twin = live.twin()
        twin.swap()
        until(lambda: "epoch 2" in games._here.follower._why)
        until(lambda: not games._here.follower._may())
        with pytest.raises(Stopped, match="epoch 2, primary target") as e:
            games.put("lost", {"id": "lost"})
        assert REPAIR in e.value.hint
    assert "lost" not in live.sides()[0]


# ---------------------------------------------------------------------- crashes and lost answers


@pytest.mark.parametrize(
    ("point", "nth", "epochs"),
    [
        ("swap.armed", 1, [(1, "source"), (1, "source")]),
        ("epoch.written", 1, [(1, "source"), (1, "source")]),
        ("swap.flipped", 1, [(1, "source"), (1, "source")]),
        ("epoch.written", 3, [(2, "target"), (1, "source")]),
        ("swap.crowned", 1, [(2, "target"), (2, "target")]),
    ],
)
def test_a_swap_that_died_between_its_steps_is_ended_by_the_next(
    live: Live, point: str, nth: int, epochs: list[tuple[int, str]]
) -> None:
    pid = os.fork()
    if pid == 0:
        left = nth

        def hook(reached: str) -> None:
            nonlocal left
            left -= reached == point
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        write = Epochs._write

        def source_first(self: Epochs, notes: Sequence[Kept], by: str) -> None:
            if {each.side for each in notes} == {"target"} and point == "epoch.written":
                signal.pause()  # both are written side by side: until the other kills
            write(self, notes, by)

        try:
            points.hook, Epochs._write = hook, source_first  # type: ignore[method-assign]
            live.swap()
        finally:
            os._exit(70)
    assert os.WTERMSIG(waited(pid)) == signal.SIGKILL
    assert live.epochs == epochs
    with live.open() as project:
        found = commands.inspect(project, "0001")
        assert found.state == "swap in hand"
        assert [choice.command for choice in found.choices] == [f"{REPAIR} --go-on"]
        after = commands.repair(project, "0001", "go-on")
    assert (after.state, after.choices) == ("agreed", [])
    if point == "swap.armed" or (nth == 1 and point == "epoch.written"):
        assert live.run == ("source", 1, "")
        live.swap()
    assert live.run == ("target", 2, "")
    assert live.epochs == [(2, "target"), (2, "target")]
    live.put("new")
    live.swap("source")
    assert "new" in live.sides()[0]


def test_both_stores_are_told_of_the_new_primary_at_once(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, both = FileNote.change, threading.Barrier(2, timeout=PATIENCE)

    def waits(self: FileNote, old: str | None, new: str | None) -> bool:
        if new is not None and (told := from_text(new)) and told.number == 2:
            both.wait()  # broken where one is written only once the other is
        return change(self, old, new)

    monkeypatch.setattr(FileNote, "change", waits)
    live.swap()
    assert live.epochs == [(2, "target"), (2, "target")]


@pytest.mark.parametrize(("nth", "carried_out"), [(1, True), (3, False), (4, True)])
def test_a_lost_answer_about_an_epoch_is_asked_for(
    live: Live, monkeypatch: pytest.MonkeyPatch, nth: int, carried_out: bool
) -> None:
    change, left = FileNote.change, nth

    def loses(self: FileNote, old: str | None, new: str | None) -> bool:
        nonlocal left
        left -= 1
        if left == 0:
            if carried_out:
                assert change(self, old, new)
            raise Transient("no answer in time", unknown=True)
        return change(self, old, new)

    monkeypatch.setattr(FileNote, "change", loses)
    live.swap()
    assert left < 0
    assert live.run == ("target", 2, "")
    assert live.epochs == [(2, "target"), (2, "target")]


def test_an_epoch_that_cant_be_written_after_the_flip_goes_on_later(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, sent = FileNote.change, 0

    def refuses(self: FileNote, old: str | None, new: str | None) -> bool:
        nonlocal sent
        sent += 1
        if sent == 4:
            raise Waiting("the disk is full")
        return change(self, old, new)

    monkeypatch.setattr(FileNote, "change", refuses)
    with pytest.raises(Waiting, match="the disk is full"):
        live.swap()
    assert live.run == ("target", 2, "flipped")
    held = [epoch for epoch in live.epochs if epoch is not None]
    assert sorted(held) == [(1, "source"), (2, "target")]  # they are written side by side
    with live.open() as project:
        assert commands.repair(project, "0001", "go-on").state == "agreed"
    assert live.run == ("target", 2, "")
    assert live.epochs == [(2, "target"), (2, "target")]


# ---------------------------------------------------------------------- repaired


def rebuilt(live: Live, primary: str | None = None) -> None:
    with live.open() as project:
        after = commands.repair(project, "0001", "rebuild", primary=primary)
    assert (after.state, after.choices) == ("agreed", [])


def assert_goes_on(live: Live, primary: str) -> None:
    """Writes go to the primary, both sides become equal, and can be swapped."""
    held = live.sides()[primary == "target"]
    live.put("later")
    assert live.sides()[primary == "target"] == held | {"later"}
    live.swap("source" if primary == "target" else "target")
    assert live.sides() == [held | {"later"}] * 2


def test_an_end_leaves_the_epoch_that_another_run_has_noted_meanwhile(live: Live) -> None:
    (note, _) = live.notes()

    def hook(point: str) -> None:
        if point == "abort.dropped":
            held = note.read()
            assert held is not None
            assert note.change(held, to_text(replace(from_text(held), run="another")))

    points.hook = hook
    with live.open() as project:
        commands.abort(project, "0001", drop_target=True)
    held = note.read()
    assert held is not None
    assert from_text(held).run == "another"


@pytest.mark.usefixtures("quick")
def test_a_control_database_of_the_past_is_rebuilt_from_the_stores(live: Live) -> None:
    backup = live.copy_control(live.config.with_name("backup.db"))
    live.swap()
    live.put("new")
    live.restore_control(backup)
    with live.open() as project:
        found = commands.inspect(project, "0001")
    assert found.state == "divided"
    assert "epoch 2, primary target" in found.why
    assert [choice.command for choice in found.choices] == [f"{REPAIR} --rebuild"]
    with live.open() as project, pytest.raises(Refused, match="the target is the primary"):
        commands.repair(project, "0001", "rebuild", primary="source")
    assert live.run == ("source", 1, "")
    with live.open() as project:
        kept = LiveState(project.control, project.control.run("0001").id)
        kept.keep(0, "target", Position({"outbox": "of the past", "seq": 1}))
    with live.open() as project, unseen(live.config.with_name("new.db")):
        target(project).write([Block("quiet", {"": {"id": "quiet"}})])
    rebuilt(live)
    assert live.run == ("target", 3, "")
    assert live.epochs == [(3, "target"), (3, "target")]
    with live.open() as project:
        told = {event["event"] for event in commands.events(project, "0001")}
    assert "feed lost" not in told  # none is read on from where it was in the past
    assert "swapped" not in told
    assert_goes_on(live, "target")
    assert {"new", "quiet"} <= live.sides()[0]


@pytest.mark.usefixtures("quick")
def test_a_repair_changes_nothing_as_long_as_writes_of_before_may_come(live: Live) -> None:
    backup = live.copy_control(live.config.with_name("backup.db"))
    live.swap()
    live.restore_control(backup)
    stop, ended = threading.Event(), queue.SimpleQueue[MigratorError]()
    with live.open() as project:
        Gateways(project.control).enter("of before", "Game", 3_600.0)

        def repairs() -> None:
            try:
                commands.repair(project, "0001", "rebuild", stop=stop)
            except MigratorError as error:
                ended.put(error)

        thread = threading.Thread(target=repairs)
        thread.start()
        try:
            until(lambda: live.run == ("target", 3, "marked"))
        finally:
            stop.set()
            joined(thread)
        assert isinstance(ended.get(), Interrupted)
        assert live.epochs == [(2, "target"), (2, "target")]
        Gateways(project.control).leave(["of before"])
    rebuilt(live)
    assert_goes_on(live, "target")


def test_where_a_side_cant_be_asked_nothing_is_repaired(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(self: FileNote) -> str | None:
        raise Terminal("no right to read it")

    with monkeypatch.context() as patch:
        patch.setattr(FileNote, "read", down)
        with live.open() as project:
            found = commands.inspect(project, "0001")
            assert (found.state, found.choices) == ("not known", [])
            assert {side.problem for side in found.sides} == {"no right to read it"}
            for way in ("go-on", "rebuild", "forget"):
                with pytest.raises(Refused, match="can't be asked: no right to read it"):
                    commands.repair(project, "0001", way)  # type: ignore[arg-type]
    assert live.epochs == [(1, "source"), (1, "source")]


def test_of_a_move_at_rest_its_run_alone_says_who_is_the_primary(tmp_path: Path) -> None:
    with commands.Project(make_project(tmp_path), "test") as project:
        fill(source(project), [("1", game(1))])
        commands.apply(project, commands.plan(project, "0001"), until=Phase.SHADOW_READ)
        with pytest.raises(Refused, match="is moved at rest"):
            commands.inspect(project, "0001")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("primary", ["source", "target"])
def test_a_lost_control_database_is_rebuilt_from_the_stores(live: Live, primary: str) -> None:
    if primary == "target":
        live.swap()
    live.put("new")
    live.control.unlink()
    with live.open() as project:
        found = commands.inspect(project, "0001")
    assert (found.state, found.control) == ("divided", None)
    ways = [choice.command for choice in found.choices]
    # Where the target is the primary, to forget that would be to lose what was written there.
    forget = [] if primary == "target" else [f"{REPAIR} --forget"]
    assert ways == [f"{REPAIR} --rebuild", *forget]
    rebuilt(live)
    epoch = 3 if primary == "target" else 2
    assert live.run == (primary, epoch, "")
    assert live.epochs == [(epoch, primary)] * 2
    if primary == "source":  # whether it was ever copied whole nobody knows
        with live.open() as project:
            assert project.control.run("0001").phase is Phase.DUAL_WRITE
            made = commands.frozen_plan(project.control.run("0001"))
            commands.apply(project, made, until=Phase.SHADOW_READ)
    assert_goes_on(live, primary)
    assert "new" in live.sides()[0]


def test_no_store_is_told_of_a_repair_before_the_last_writes_of_before_are_over(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = live.copy_control(live.config.with_name("backup.db"))
    live.swap()
    live.restore_control(backup)
    stop, waits = threading.Event(), list[float]()

    def warning(what: str, *, seconds: float) -> None:
        waits.append(seconds)
        stop.set()

    with live.open() as project:
        Gateways(project.control).enter("of before", "Game", 3600.0)
        with monkeypatch.context() as patch:
            patch.setattr(repairing, "log", SimpleNamespace(warning=warning))
            with pytest.raises(Interrupted, match="the same command"):
                commands.repair(project, "0001", "rebuild", stop=stop)
        assert live.epochs == [(2, "target")] * 2
        assert live.run[2], "gateways are not stopped"
        assert waits[0] > 3000
        Gateways(project.control).leave(["of before"])
    monkeypatch.setattr(repairing, "LEASE", 0.1)
    rebuilt(live, "target")
    assert live.epochs == [(4, "target")] * 2


def test_a_lost_run_is_not_rebuilt_from_another_plan(live: Live) -> None:
    live.swap()
    live.control.unlink()
    plan = next(live.config.parent.glob("plans/*.json"))
    with live.open() as project:
        other = replace(decode_plan(plan.read_bytes(), "plan"), fingerprint="another")
        commands.save_plan(project, other)
    with live.open() as project, pytest.raises(Refused, match="was begun with another plan"):
        commands.repair(project, "0001", "rebuild")
    plan.unlink()
    with live.open() as project, pytest.raises(Refused, match="is needed to rebuild it"):
        commands.repair(project, "0001", "rebuild")
    with live.open() as project, pytest.raises(Refused, match="is no way on"):
        commands.repair(project, "0001", "forget")
    assert live.epochs == [(2, "target"), (2, "target")]


@pytest.mark.usefixtures("quick")
def test_a_store_of_the_past_is_not_taken_for_the_primary_unasked(live: Live) -> None:
    """What its mirror holds may be all that is left of what was written since."""
    with live.open() as project:
        backup = live.config.with_name("old.backup")
        old = live.config.with_name("old.db")
    with closing(sqlite3.connect(old)) as here, closing(sqlite3.connect(backup)) as there:
        here.backup(there)
    live.swap()
    live.put("new")
    live.swap("source")
    with closing(sqlite3.connect(backup)) as here, closing(sqlite3.connect(old)) as there:
        here.backup(there)
    assert "new" not in live.sides()[0]
    with live.open() as project, pytest.raises(Refused) as e:
        commands.mirror(project, "0001")
    assert REPAIR in e.value.hint
    with live.open() as project:
        found = commands.inspect(project, "0001")
        assert found.state == "unclear"
        assert [choice.command for choice in found.choices] == [
            f"{REPAIR} --rebuild --primary source", f"{REPAIR} --rebuild --primary target"
        ]  # fmt: skip
        with pytest.raises(Refused, match="which side's data is to be kept"):
            commands.repair(project, "0001", "rebuild")
    rebuilt(live, "target")
    assert live.run == ("target", 4, "")
    assert_goes_on(live, "target")
    assert "new" in live.sides()[0]


def test_what_a_run_that_is_over_left_is_forgotten(live: Live) -> None:
    (note, _) = live.notes()
    text = note.read()
    with live.open() as project:
        commands.abort(project, "0001", drop_target=True)
    assert note.change(None, text)  # as a store restored from a copy would have it
    with pytest.raises(Refused, match="is under way there"):
        live.put("late")
    with live.open() as project:
        found = commands.inspect(project, "0001")
        assert found.state == "left behind"
        assert [choice.command for choice in found.choices] == [f"{REPAIR} --forget"]
        assert commands.repair(project, "0001", "forget").state == "agreed"
    assert live.epochs == [None, None]
    live.put("now")


def test_what_is_noted_of_the_run_under_way_is_not_forgotten_with_what_another_left(
    live: Live,
) -> None:
    (first, _) = live.notes()
    text = first.read()
    with live.open() as project:
        commands.abort(project, "0001", drop_target=True)
        made, _ = commands.plan_to_file(project, "0001", live=True)
        commands.apply(project, made, until=Phase.DUAL_WRITE)
    (_, second) = live.notes()
    assert (mine := second.read()) is not None
    assert first.change(first.read(), text)  # as a store restored from a copy would have it
    with live.open() as project:
        assert commands.inspect(project, "0001").state == "left behind"
        commands.repair(project, "0001", "forget")
    assert [note.read() for note in live.notes()] == [None, mine]


def test_a_repair_leaves_a_mirror_at_work_alone(live: Live) -> None:
    with live.open() as project:
        run = project.control.run("0001")
        project.control.record(run.id, "armed", to="target", **to_builtins(TERMS))
        LiveState(project.control, run.id).arm(run)
        with (
            Lease(project.control, "test/0001/mirror"),
            pytest.raises(Refused, match="a mirror of 0001 is at work"),
        ):
            commands.repair(project, "0001", "go-on")
        assert commands.repair(project, "0001", "go-on").state == "agreed"


def test_where_all_agree_there_is_nothing_to_repair(live: Live) -> None:
    with live.open() as project:
        found = commands.inspect(project, "0001")
        assert (found.state, found.choices) == ("agreed", [])
        for way in ("go-on", "rebuild", "forget"):
            with pytest.raises(Refused, match="is no way on"):
                commands.repair(project, "0001", way)  # type: ignore[arg-type]
    assert live.epochs == [(1, "source"), (1, "source")]
