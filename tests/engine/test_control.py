"""The control database: its first start, foreign files, long keys; on SQLite and PostgreSQL."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy as sa

from migrator import commands, write_ahead
from migrator.errors import MigratorError, Refused, Transient, Waiting
from migrator.gateway import Gateway
from migrator.model.distinct import Distinct
from migrator.model.phase import Phase
from migrator.model.value import Int64, Value
from migrator.state import (
    Answered,
    LiveState,
    MirrorReads,
    Pace,
    Part,
    Quarantined,
    Reads,
    ShadowReads,
    add_up,
    all_answered,
    database,
    highest_number,
    keep_pace,
    merging,
    quarantine_key,
    tables,
)
from migrator.state.rebuild import insert_run
from tests.conftest import tidy
from tests.ending import PATIENCE, joined, waited
from tests.engine.games import contents, fill, game, make_project, source, target
from tests.engine.test_review import put, spoil


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Path:
    return make_project(tmp_path)


@pytest.fixture
def on_postgresql(tmp_path: Path, postgresql_url: str) -> Iterator[Path]:
    name = f"control_{os.getpid()}"
    url = sa.make_url(postgresql_url).set(drivername="postgresql+psycopg")
    server = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with server.connect() as c:
        c.execute(sa.text(f"DROP DATABASE IF EXISTS {name}"))
        c.execute(sa.text(f"CREATE DATABASE {name}"))
    config = make_project(tmp_path, oversize="quarantine")
    mine = url.set(drivername="postgresql", database=name).render_as_string(hide_password=False)
    config.write_text(f'[env.test]\ncontrol = "{mine}"\n' + config.read_text())
    yield config

    def drop() -> None:
        with server.connect() as c:
            c.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))

    tidy("postgresql", drop)
    server.dispose()


@pytest.fixture(params=["on_sqlite", "on_postgresql"])
def config(request: pytest.FixtureRequest) -> Path:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Path)
    return found


def test_a_first_start_that_was_killed_midway_is_begun_again(config: Path) -> None:
    pid = os.fork()
    if pid == 0:
        metadata_create = sa.event.listens_for(sa.engine.Engine, "before_cursor_execute")

        @metadata_create
        def kill(_c: object, _cursor: object, statement: str, *_: object) -> None:
            if "CREATE TABLE migrator_log" in statement:
                os.kill(os.getpid(), 9)

        with commands.Project(config, "test") as project:
            project.control.runs()
        os._exit(0)
    assert waited(pid) == 9
    with commands.Project(config, "test") as project:
        assert project.control.runs() == []


def test_a_row_that_another_process_makes_just_then_is_no_error(config: Path) -> None:
    with commands.Project(config, "test") as project, commands.Project(config, "test") as other:
        live, beside = LiveState(project.control, "run"), LiveState(other.control, "run")
        other.control.runs()
        asked: list[int] = []

        @sa.event.listens_for(project.control.engine, "before_cursor_execute")
        def meets(_c: object, _cursor: object, statement: str, *_: object) -> None:
            if statement.startswith("INSERT INTO migrator_mirror") and not asked:
                asked.append(beside.ask("prepared", {}))

        live.tell(lag=1.0)

        assert asked == [1]
        assert live.asked() is not None
        assert live.told()[1] == {"lag": 1.0}


def test_each_of_several_that_ask_at_once_reads_its_own_answer(config: Path) -> None:
    with commands.Project(config, "test") as project:
        live = LiveState(project.control, "run")
        replaced, first = live.ask("cut_over", {}), live.ask("cut_over", {})
        taken = live.asked()
        assert taken is not None
        second = live.ask("shadow_read", {})  # while the mirror has the first one in hand

        live.answer(taken.number, {"swap": "there"})
        assert live.answered(first) == {"swap": "there"}
        live.answer(second, {"swap": "back"})
        live.withdraw(second)  # too late

        assert live.answered(first) == {"swap": "there"}
        assert live.answered(second) == {"swap": "back"}
        with pytest.raises(Refused, match="before this was done"):
            live.answered(replaced)
        third, fourth = live.ask("shadow_read", {}), live.ask("cut_over", {})
        live.withdraw(fourth)
        assert live.asked() is None
        live.answer(third, {"swap": "late"})  # opens no request again that was taken back
        assert live.asked() is None
        assert live.answered(second) == {"swap": "back"}
        for _ in range(8):
            live.answer(live.ask("cut_over", {}), {})
        with pytest.raises(Refused):  # the row does not grow for ever
            live.answered(second)


def test_a_run_that_has_not_ended_is_the_one_that_is_meant_whatever_clocks_say(
    config: Path,
) -> None:
    with commands.Project(config, "test") as project:
        runs = project.control
        gone = runs.start("0001", "", "", [("Game", "a", "b")])
        runs.advance(gone, Phase.ABORTED)
        with runs.transaction() as c:  # by a host whose clock is ahead
            c.execute(tables.run.update().values(started=time.time() + 3600))
        here = runs.start("0001", "", "", [("Game", "a", "b")])

        assert runs.run("0001").id == here.id
        assert [run.id for run in runs.runs("0001")] == [gone.id, here.id]
        assert runs.run(gone.id).id == gone.id


def test_a_swap_that_was_given_up_is_no_new_phase(config: Path) -> None:
    with commands.Project(config, "test") as project:
        source(project).create()
        commands.apply(project, commands.plan(project, "0001", live=True), until=Phase.PREPARED)
        run = project.control.run("0001")
        state = LiveState(project.control, run.id)
        state.release(state.lowering(state.undoing(state.raise_fence(state.arm(run)))))
        again = project.control.run("0001")
        assert again.attempt == run.attempt + 1
        assert again.changed == run.changed


def test_several_first_starts_at_once(config: Path) -> None:
    errors: list[BaseException] = []

    def start() -> None:
        try:
            with commands.Project(config, "test") as project:
                project.control.runs()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    joined(*threads)
    assert errors == []


def test_processes_that_make_the_control_database_at_once_wait_for_each_other(
    on_sqlite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = on_sqlite.parent / ".migrator" / "test.db"
    file.parent.mkdir()
    here, there = os.pipe()
    begins, go = os.pipe()
    told: list[float] = []

    def waits(seconds: float) -> None:
        if not told:
            os.write(there, b".")
        told.append(seconds)
        time.sleep(seconds)

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=waits)
    monkeypatch.setattr(write_ahead, "time", clock)

    def opens() -> None:
        os.read(begins, 1)
        with commands.Project(on_sqlite, "test") as project:
            project.control.runs()

    # Made before the file is opened here: SQLite's own notes of locks outlive a fork.
    children = [_child(opens) for _ in range(2)]
    os.close(there)
    with closing(sqlite3.connect(file, isolation_level=None)) as holder:
        # Where somebody is about to write, SQLite switches to WAL or fails, at once.
        holder.execute("BEGIN IMMEDIATE")
        os.write(go, b"..")
        waiting = os.read(here, 1) + os.read(here, 1)  # less, where one of them ends
        holder.execute("COMMIT")
    for end in (here, begins, go):
        os.close(end)
    assert waiting == b".."
    assert [os.waitstatus_to_exitcode(waited(pid)) for pid in children] == [0, 0]


def _child(work: Callable[[], None]) -> int:
    """Another process, which ends with 0 where the work could be done."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return pid


def test_a_file_that_is_no_database_is_told(on_sqlite: Path) -> None:
    (on_sqlite.parent / ".migrator").mkdir()
    (on_sqlite.parent / ".migrator" / "test.db").write_bytes(b"no database" * 100)
    with (
        commands.Project(on_sqlite, "test") as project,
        pytest.raises(MigratorError, match="not a database"),
    ):
        project.control.runs()


def test_a_newer_control_database_is_refused(config: Path) -> None:
    with commands.Project(config, "test") as project, project.control.transaction() as c:
        c.execute(sa.text("UPDATE migrator_state_version SET version_num = '0999'"))
    with commands.Project(config, "test") as project, pytest.raises(Refused, match="0999"):
        project.control.runs()


def test_a_run_from_begin_to_end_with_a_long_odd_key(on_postgresql: Path) -> None:
    long = "\ud800\0ключ'" * 90
    with commands.Project(on_postgresql, "test") as project:
        fill(source(project), [(str(n), game(n)) for n in range(5)] + [(long, game(7))])
        spoil(project, "deep")
        with project.stores.get("old").writing() as c:  # type: ignore[attr-defined]
            c.execute(
                "UPDATE entries_1 SET value = x'c0', entry = 'rounds[5]' WHERE block LIKE '%клю%'"
                " OR typeof(block) = 'blob'"
            )
        plan = commands.plan(project, "0001")
        terms = commands.Terms(accept={f.code for f in plan.to_accept}, accept_keys=["Game:deep"])
        with pytest.raises(Waiting, match="1 blocks"):
            commands.apply(project, plan, terms=terms)
        assert len(commands.quarantine(project, "0001")) == 2
        put(source(project), long, game(8))
        assert commands.retry_quarantined(project, "0001") == (1, 1)
        assert commands.apply(project, plan, terms=terms).phase == "cut_over"
        assert long in contents(target(project))
        commands.rollback(project, "0001")
        commands.apply(project, plan, terms=terms)
        commands.finish(project, "0001", keep_source=False, accept_keys=["Game:deep"])
        told = [event["event"] for event in commands.events(project, "0001")]
        assert told[-1] == "finished"
        assert commands.status(project)[0].phase == "finished"


def test_names_of_any_length(config: Path) -> None:
    """PostgreSQL refuses what is longer than a column is declared; run ids hold the revision's."""
    env, revision = "e" * 110, "r" * 110
    config.write_text(config.read_text().replace("env.test", f"env.{env}"))
    script = config.parent / "migrations" / "0001_rounds.py"
    script.write_text(script.read_text().replace('"0001"', f'"{revision}"'))
    with commands.Project(config, env) as project:
        fill(source(project), [(str(n), game(n)) for n in range(5)])
        plan = commands.plan(project, revision)
        commands.save_plan(project, plan)
        assert commands.show(project, revision) == plan
        run = commands.apply(project, plan).run
        assert run.startswith(revision)
        commands.rollback(project, revision)
        commands.apply(project, plan)
        commands.finish(project, revision, keep_source=True)
        assert commands.status(project)[0].phase == "finished"
        assert commands.events(project, revision)[-1]["event"] == "finished"


@pytest.mark.parametrize("older", [f"{n:04}" for n in range(1, int(database.HEAD))])
def test_a_control_database_of_an_older_version_is_brought_up_to_date(
    config: Path, older: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(database, "HEAD", older)
        with commands.Project(config, "test") as project:
            assert project.control.env == "test"
    with commands.Project(config, "test") as project, project.control.transaction() as c:
        made = sa.inspect(c)
        for table in tables.metadata.sorted_tables:
            found = {column["name"]: column for column in made.get_columns(table.name)}
            assert found.keys() == set(table.columns.keys()), table.name
            for column in table.columns:
                assert found[column.name]["nullable"] == column.nullable, column
                if c.dialect.name == "postgresql":
                    kind = found[column.name]["type"].compile(c.dialect)
                    kind = kind.replace("DOUBLE PRECISION", "FLOAT")
                    assert kind == column.type.compile(c.dialect), column
        query = sa.text("SELECT version_num FROM migrator_state_version")
        assert c.execute(query).scalar_one() == database.HEAD


def test_who_steers_at_once_undoes_nothing_of_the_other(config: Path) -> None:
    with commands.Project(config, "test") as project, commands.Project(config, "test") as other:
        ours, theirs = project.control, other.control
        theirs.runs()
        keep_pace(ours, "run", "throttled", rate=1.0)
        meets: list[Callable[[], object]] = []

        @sa.event.listens_for(ours.engine, "before_cursor_execute")
        def meet(_c: object, _cursor: object, statement: str, *_: object) -> None:
            if meets and not statement.startswith("SELECT") and "migrator_pace" in statement:
                meets.pop()()

        meets.append(lambda: keep_pace(theirs, "run", "paused", paused=True))
        assert keep_pace(ours, "run", "throttled", rate=5.0) == Pace(5.0, paused=True)
        assert meets == []


def test_a_row_of_what_was_said_is_made_by_one_of_two_at_once(on_postgresql: Path) -> None:
    config = on_postgresql
    with commands.Project(config, "test") as project, commands.Project(config, "test") as other:
        ours, theirs = project.control, other.control
        theirs.runs()
        mine, its = ShadowReads(ours, "run"), ShadowReads(theirs, "run")
        meets: dict[str, Callable[[], object]] = {
            "migrator_pace": lambda: keep_pace(theirs, "run", "paused", paused=True),
            "migrator_reads": lambda: its.keep_share(0.5),
            "migrator_stamp": lambda: theirs.stamp("0001"),
        }

        @sa.event.listens_for(ours.engine, "before_cursor_execute")
        def meet(_c: object, _cursor: object, statement: str, *_: object) -> None:
            if statement.startswith("INSERT INTO migrator_") and meets:
                meets.pop(statement.split()[2], lambda: None)()

        assert keep_pace(ours, "run", "throttled", rate=5.0) == Pace(5.0, paused=True)
        mine.keep_share(0.25)
        assert mine.share() == 0.25
        ours.stamp("0001")
        assert ours.stamps() == {"0001"}
        assert meets == {}


def test_what_short_lived_processes_found_is_added_up_and_none_of_it_twice(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "MOST", 3)
    monkeypatch.setattr(merging, "QUIET", 0.0)
    together = threading.Barrier(4, timeout=PATIENCE)

    def works(number: int) -> None:
        """Reports on and on, as does each other: their rows are added up under them."""
        with commands.Project(config, "test") as project:
            kept, read = ShadowReads(project.control, "run"), MirrorReads(project.control, "run")
            shadow, answers, agreed = Part(), Part(), Distinct()
            for reads in range(1, 7):
                together.wait()
                agreed.add(b"%d" % (number * 3 + reads))  # half of them are its neighbour's, too
                shadow.report(
                    {"reads": reads},
                    lambda *row: kept.keep(0, 1, Reads(*row[:2], agreed), there=row[2]),
                )
                answers.report(
                    {"served": reads},
                    lambda *row: read.keep(0, 1, Answered(*row[:2]), there=row[2]),
                )

    with commands.Project(config, "test") as project:
        kept = ShadowReads(project.control, "run")
        for number in range(5):  # of a command each, with no counts of its own
            hand = Reads(f"{number}" * 32, agreed=Distinct([number]), gateway=False)
            assert kept.keep(0, 1, hand)
        threads = [threading.Thread(target=works, args=[number]) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            joined(thread)
        found = kept.found(0, 1)
        gateways, others = (
            add_up([each for each in found if each.gateway is kind]) for kind in (True, False)
        )
        assert len(found) <= 3 + len(threads)
        assert (gateways.counts, gateways.agreed.count) == ({"reads": 24}, 15)
        assert (others.counts, others.agreed.count) == ({}, 5)
        answered = MirrorReads(project.control, "run").found(1)
        assert len(answered) <= 3 + len(threads)
        assert all_answered(answered).counts == {"served": 24}


def test_a_run_that_is_rebuilt_and_one_that_starts_are_not_both_on_a_class(config: Path) -> None:
    moves = [("Game", "a", "b")]
    with commands.Project(config, "test") as project, commands.Project(config, "test") as other:
        lost = project.control.start("0001", "", "", moves)
        with project.control.transaction() as c:
            c.execute(tables.move.delete())
            c.execute(tables.run.delete())
        other.control.runs()
        began: list[str] = []

        def start() -> None:
            try:
                other.control.start("0002", "", "", moves)
            except Refused as error:
                began.append(error.what)
            else:
                began.append("both")

        thread = threading.Thread(target=start)

        @sa.event.listens_for(project.control.engine, "before_cursor_execute")
        def meets(_c: object, _cursor: object, statement: str, *_: object) -> None:
            if statement.startswith("INSERT INTO migrator_run"):
                thread.start()
                thread.join(0.2)

        insert_run(project.control, lost, moves)
        joined(thread)
        assert began == ["Game is in an unfinished move (revision 0001)"]


def test_a_pool_without_a_free_connection_is_waited_for(on_sqlite: Path) -> None:
    with commands.Project(on_sqlite, "test") as project:
        engine = project.control.engine
        engine.pool._timeout = 0.01  # type: ignore[attr-defined]
        with ExitStack() as held:
            while engine.pool.checkedout() < 15:  # type: ignore[attr-defined]
                held.enter_context(engine.connect())
            with pytest.raises(Transient, match="no connection became free"):
                project.control.runs()


def test_one_place_under_two_names_is_in_one_unfinished_move(on_sqlite: Path) -> None:
    """A swap of one would stop the writes to the other, and its end drop what that reads."""
    same = '[env.test.stores.same]\nurl = "embedded:///old.db"\n'
    on_sqlite.write_text(on_sqlite.read_text() + same)
    (on_sqlite.parent / "migrations" / "0002_players.py").write_text(
        "from migrator import At, Move\n"
        'revision, down_revision = "0002", None\n'
        'move = Move("Player", source=At("same", "games"), target=At("new", "players"))\n'
    )
    with commands.Project(on_sqlite, "test") as project:
        fill(source(project), [("1", game(1))])
        commands.apply(project, commands.plan(project, "0001"), until=Phase.PREPARED)
        with pytest.raises(Refused, match="Game is in an unfinished move"):
            commands.apply(project, commands.plan(project, "0002"))
        commands.abort(project, "0001", drop_target=True)
        commands.apply(project, commands.plan(project, "0002"), until=Phase.PREPARED)


def _of_two(root: Path, second: str) -> Path:
    """A project of two environments with one control database; the second's stores begin so."""
    config = make_project(root)
    both = "".join(
        f'[env.{env}]\ncontrol = "sqlite:///both.db"\nrequest_life = 0.1\n'
        f'[env.{env}.stores.old]\nurl = "embedded:///{begins}old.db"\n'
        f'[env.{env}.stores.new]\nurl = "embedded:///{begins}new.db"\n'
        for env, begins in (("first", ""), ("second", second))
    )
    config.write_text(both)
    return config


def test_two_environments_in_one_control_database_know_nothing_of_each_other(
    tmp_path: Path,
) -> None:
    config = _of_two(tmp_path, "other_")
    with commands.Project(config, "first") as first, commands.Project(config, "second") as second:
        for project, count in ((first, 3), (second, 5)):
            fill(source(project), [(str(n), game(n)) for n in range(count)])
            plan = commands.plan(project, "0001", live=True)
            commands.apply(project, plan, until=Phase.SHADOW_READ)
        commands.cutover(first, "0001", swap=commands.SwapTerms(bound=60, lag=60))
        for project, phase, side in ((first, "cut_over", target), (second, "shadow_read", source)):
            (told,) = commands.status(project)
            assert told.phase == phase
            with Gateway.open("Game", config, project.settings.env) as games:
                games.put("new", {"id": "new"})
            assert "new" in contents(side(project))
        commands.abort(second, "0001", drop_target=True)
        assert commands.status(second) == []
        assert [run.phase for run in commands.status(first)] == ["cut_over"]


def test_one_place_is_in_one_unfinished_move_of_all_environments(tmp_path: Path) -> None:
    config = _of_two(tmp_path, "")
    with commands.Project(config, "first") as first, commands.Project(config, "second") as second:
        fill(source(first), [("1", game(1))])
        commands.apply(first, commands.plan(first, "0001"), until=Phase.PREPARED)
        with pytest.raises(Refused, match="0001 of environment first"):
            commands.apply(second, commands.plan(second, "0001"))
        commands.abort(first, "0001", drop_target=True)
        commands.apply(second, commands.plan(second, "0001"), until=Phase.PREPARED)


def test_the_highest_number_is_of_one_class_and_of_any_kind_of_whole_numbers() -> None:
    def left_out(move: int, key: Value) -> Quarantined:
        return Quarantined(move, quarantine_key(key), "", "", "", 0.0)

    items = [left_out(0, 5), left_out(0, "900"), left_out(0, -900), left_out(1, 900)]
    assert highest_number(items, 0) == 5
    assert highest_number([*items, left_out(0, Int64(7))], 0) == 7
    assert highest_number([*items, left_out(0, 2**70)], 0) == 2**70
    assert highest_number(items[1:3], 0) == 0
