"""Leases and the fence, with real processes: nothing acknowledged is lost over a swap."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa

from migrator import commands
from migrator.errors import Refused, Transient
from migrator.gateway import Stopped, follower
from migrator.model.block import Block
from migrator.model.move import At
from migrator.model.phase import Phase
from migrator.state import gateways
from migrator.state import tables as t
from migrator.state.gateways import GatewayLease, Watch
from migrator.state.lease import boot_clock
from tests.ending import joined, waited
from tests.engine.games import contents, fill, source, target
from tests.gateway.kit import (
    HASTY,
    LASTING,
    QUICK,
    Owner,
    control_on,
    make_project,
    opened,
    until,
)
from tests.gateway.writers import Writer, is_free
from tests.system.servers import MakeDatabase


@pytest.fixture
def config(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A project whose control database lies on SQLite, or where the test says."""
    config = make_project(tmp_path)
    if getattr(request, "param", "sqlite") == "postgresql":
        control_on(config, request.getfixturevalue("database_url"))
    with commands.Project(config, "test") as project:
        source(project).create()
        target(project).create()
    return config


@pytest.fixture
def owner(config: Path) -> Iterator[Owner]:
    with commands.Project(config, "test") as project:
        yield Owner(project)


Spawn = Callable[..., Writer]
EITHER = pytest.mark.parametrize("config", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture
def spawn(config: Path) -> Iterator[Spawn]:
    made: list[Writer] = []

    def start(name: str) -> Writer:
        made.append(Writer(config, name).start())
        return made[-1]

    yield start
    for writer in made:
        if not writer.waited:
            writer.kill()


def files(config: Path) -> tuple[Path, Path]:
    """Those that an owner must not be kept out of: the control database, and the old side."""
    return config.parent / ".migrator" / "test.db", config.parent / "old.db"


def side(config: Path, name: str) -> dict[object, dict[str, object]]:
    with commands.Project(config, "test") as project:
        return contents((source if name == "source" else target)(project))  # type: ignore[return-value]


def carry(config: Path, to: str) -> None:
    """What a mirror has done by the end of a drain: both sides are equal."""
    with commands.Project(config, "test") as project:
        ends = source(project), target(project)
        old, new = ends if to == "target" else ends[::-1]
        new.drop()
        fill(new, contents(old).items())


def swap(owner: Owner, config: Path, to: str) -> None:
    """A whole swap; the primary must stand still from the fence on."""
    owner.hold()
    still = side(config, "source" if to == "target" else "target")
    carry(config, to)
    owner.flip(to)
    assert side(config, to) == still
    owner.release()


def more(writers: list[Writer], lines: int = 3) -> None:
    """Until each has done some more."""
    before = [writer.lines() for writer in writers]
    until(lambda: all(w.lines() >= b + lines for w, b in zip(writers, before, strict=True)))


def assert_held(config: Path, name: str, writers: list[Writer]) -> None:
    held = side(config, name)
    for writer in writers:
        for key, value in writer.acknowledged().items():
            assert held.get(key) == value, key


@EITHER
def test_nothing_acknowledged_is_lost_over_swaps(config: Path, owner: Owner, spawn: Spawn) -> None:
    writers = [spawn("a"), spawn("b")]
    more(writers)
    swap(owner, config, "target")
    more(writers)
    swap(owner, config, "source")
    more(writers)
    for writer in writers:
        writer.stop()
    assert_held(config, "source", writers)


@EITHER
def test_a_gateway_that_begins_under_the_fence_waits(
    config: Path, owner: Owner, spawn: Spawn
) -> None:
    owner.arm()
    owner.fence()
    late = spawn("late")
    until(lambda: bool(owner.gateways.leases(["Game"])))
    carry(config, "target")
    owner.flip("target")
    assert side(config, "target") == {}
    owner.release()
    more([late])
    late.stop()
    assert side(config, "source") == {}
    assert_held(config, "target", [late])


def swap_without(lapsed: list[str], config: Path, owner: Owner) -> None:
    """Go on from the fence without the gateways whose lease ran out."""
    owner.gateways.leave(lapsed)
    carry(config, "target")
    owner.flip("target")
    owner.release()


def test_a_gateway_that_slept_through_a_swap_writes_to_the_new_primary(
    config: Path, owner: Owner, spawn: Spawn
) -> None:
    sleeper = spawn("sleeper")
    more([sleeper])
    owner.arm()
    sleeper.freeze(*files(config))
    lapsed = owner.fence()
    assert len(lapsed) == 1
    swap_without(lapsed, config, owner)
    old = side(config, "source")
    sleeper.signal(signal.SIGCONT)
    more([sleeper])
    sleeper.stop()
    # R16: what was between check and send when it was stopped is not ours to stop.
    new = side(config, "source")
    late = [k for k in old.keys() | new.keys() if old.get(k) != new.get(k)]  # a delete, too
    assert len(late) <= 1
    # It was not acknowledged, though.
    assert_held(config, "target", [sleeper])


def test_a_write_that_slept_through_a_swap_is_not_acknowledged(config: Path, owner: Owner) -> None:
    told, go = config.parent / "told", config.parent / "go"
    pid = os.fork()
    if pid == 0:
        try:
            with opened(config) as games:
                games.put("1", {"n": 1})
                primary = games._here.sides(games._here.follower.standing).primary
                write = primary.write

                def late(blocks: Sequence[Block]) -> int:
                    while not go.exists():
                        os.kill(os.getpid(), signal.SIGSTOP)  # between check and send
                    return write(blocks)

                primary.write = late  # type: ignore[method-assign]
                try:
                    games.put("1", {"n": 2})
                    told.write_text("acknowledged")
                except Transient as error:
                    told.write_text(f"{error.unknown} {error}")
                games.put("1", {"n": 3})
        except BaseException as error:  # noqa: BLE001 - told to the test, which reads it
            told.write_text(repr(error))
        finally:
            os._exit(0)
    os.waitpid(pid, os.WUNTRACED)
    while not all(map(is_free, files(config))):  # its thread was at the control database
        os.kill(pid, signal.SIGCONT)
        os.waitpid(pid, os.WUNTRACED)
    owner.arm()
    lapsed = owner.fence()
    assert len(lapsed) == 1
    swap_without(lapsed, config, owner)
    go.touch()
    os.kill(pid, signal.SIGCONT)
    waited(pid)
    assert told.read_text().startswith("True old:games: the lease of this gateway ran out while")
    assert side(config, "source")["1"] == {"n": 2}
    assert side(config, "target")["1"] == {"n": 3}


def test_an_undone_attempt_lets_writes_go_on_where_they_were(config: Path, owner: Owner) -> None:
    with opened(config) as games, opened(config, HASTY) as hasty:
        games.put("1", {"n": 1})
        owner.hold()
        began = time.monotonic()
        with pytest.raises(Stopped, match="nothing was written"):
            hasty.put("1", {"n": 2})
        assert HASTY.bound <= time.monotonic() - began < QUICK.bound
        assert hasty.get("1").value == {"n": 1}  # type: ignore[union-attr]
        owner.release()
        games.put("1", {"n": 3})
        owner.hold()  # the second attempt has a number of its own (R13)
    assert side(config, "source")["1"] == {"n": 3}


def test_a_write_in_flight_keeps_the_fence_waiting(
    config: Path, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gateway's write waits for a lock of the store's file, well into the fence."""
    for module in (follower, gateways):
        monkeypatch.setattr(module, "SHORT", 60.0)  # it does not run out on a busy machine
    file = config.parent / "old.db"
    blocker = sqlite3.connect(file, isolation_level=None, check_same_thread=False, timeout=60)
    with opened(config) as games:
        owner.arm()
        blocker.execute("BEGIN IMMEDIATE")
        writer = threading.Thread(target=games.put, args=("1", {"n": 1}))
        writer.start()
        until(lambda: games._here.follower._flying == 1)
        unlock = threading.Timer(0.3, blocker.execute, ("ROLLBACK",))
        unlock.start()
        owner.fence()
        assert side(config, "source") == {"1": {"n": 1}}
        joined(unlock)
        joined(writer)
    blocker.close()


def test_a_gateway_says_nothing_under_a_fence_that_nobody_waits_for(
    config: Path, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner writes to the control database just then, and all writers wait for that."""
    said, saw = list[str](), gateways.Gateways.saw

    def note(self: gateways.Gateways, instance: str, seen: gateways.Standing) -> None:
        saw(self, instance, seen)
        said.append(seen.fence)

    monkeypatch.setattr(gateways.Gateways, "saw", note)
    with opened(config) as games:
        follows = games._here.follower
        owner.hold()
        for fence in ("flipped", "marked"):
            if fence == "flipped":
                owner.flip("target")
            else:
                owner.run = owner.live.marked(owner.run)
            until(lambda fence=fence: follows.standing.fence == fence)  # type: ignore[misc]
        owner.release()
        games.put("1", {"n": 1})
        until(lambda: said[-1] == "")
        (lease,) = owner.gateways.leases(["Game"])
        assert lease.epoch == 2
    assert set(said) <= {"", "armed"}


def test_a_lease_that_can_not_be_renewed_stops_writes_and_not_reads(config: Path) -> None:
    with opened(config) as games, opened(config, HASTY) as hasty:
        games.put("1", {"n": 1})
        control = sqlite3.connect(files(config)[0], isolation_level=None, timeout=60)
        control.execute("BEGIN IMMEDIATE")
        until(lambda: not hasty._here.follower._may())
        with pytest.raises(Stopped, match="lease"):
            hasty.put("1", {"n": 2})
        assert hasty.get("1") is not None
        control.execute("ROLLBACK")
        control.close()
        games.put("1", {"n": "after"})
    assert side(config, "source")["1"] == {"n": "after"}


def test_a_call_asks_the_control_database_for_nothing(config: Path, owner: Owner) -> None:
    here, asked = threading.get_ident(), list[str]()

    def note(_c: object, _cursor: object, told: str, *_: object) -> None:
        if threading.get_ident() == here:
            asked.append(told)

    with opened(config, LASTING) as games:  # it looks there once its lease has run out
        assert games._here.follower.standing.run == owner.run.id
        sa.event.listen(sa.engine.Engine, "before_cursor_execute", note)
        try:
            games.put("1", {"rounds": []}, expected=None)
            games.append("1", "rounds", 1)
            games.update("1", {"n": 1})
            assert games.get("1").value == {"n": 1, "rounds": [1]}  # type: ignore[union-attr]
            assert games.get_entries("1", ["n"]) == {"n": 1}
            games.delete("1")
            assert asked == []
            owner.gateways.leases(["Game"])
        finally:
            sa.event.remove(sa.engine.Engine, "before_cursor_execute", note)
    assert len(asked) == 1, "what is asked here is not heard"


def test_a_lease_of_another_is_there_for_as_long_as_the_settings_let_a_request_live(
    config: Path,
) -> None:
    """An owner goes by that of the settings, whatever those who sweep before it were told."""
    config.write_text("[env.test]\nrequest_life = 1000.0\n" + config.read_text())
    with opened(config, LASTING) as games:
        rows, sweep, now = games._here.follower._gateways, games._here.follower._sweep, 0.0
        sweep._clock = lambda: now
        rows.enter("killed", "Game", 15.0)
        left = list[bool]()
        for now in (0.0, 500.0, 1000.0, 1500.0):
            sweep._due = now
            sweep.turn()
            left.append("killed" in {row.instance for row in rows.leases(["Game"])})
        assert left == [True, True, True, False]


def test_a_forked_child_has_a_lease_of_its_own(config: Path, owner: Owner) -> None:
    with opened(config) as games:
        games.put("parent", {})
        follower = games._here.follower
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                with pytest.raises(Refused), follower.writing(0.0):
                    pass
                games.put("child", {})
                assert games._here.follower.instance != follower.instance
                assert len(owner.gateways.leases(["Game"])) == 2
                games.close()
                code = 0
            finally:
                os._exit(code)
        assert waited(pid) == 0
        games.put("parent", {"again": True})
        (lease,) = owner.gateways.leases(["Game"])
        assert lease.instance == follower.instance
    assert owner.gateways.leases(["Game"]) == []
    assert side(config, "source") == {"parent": {"again": True}, "child": {}}


def test_no_fork_comes_while_a_gateways_thread_is_at_a_database(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mutex of the database's library, that the thread has then, stays locked in the child."""
    standing, within = gateways.Gateways.standing, threading.Event()

    def stands(self: gateways.Gateways, cls: str) -> object:
        if threading.current_thread() is threading.main_thread():
            return standing(self, cls)
        within.set()
        time.sleep(0.1)
        found = standing(self, cls)
        within.clear()
        return found

    with opened(config) as games:
        games.put("parent", {})
        monkeypatch.setattr(gateways.Gateways, "standing", stands)
        for _ in range(3):
            assert within.wait(60)
            pid = os.fork()
            if pid == 0:
                os._exit(within.is_set())
            assert waited(pid) == 0
        games.put("parent", {"again": True})  # it goes on


def test_a_forked_child_ends_no_session_of_its_parent(
    tmp_path: Path, database_url: MakeDatabase
) -> None:
    config = make_project(tmp_path)
    control_on(config, database_url)
    with opened(config, LASTING) as games:

        def sessions() -> set[int]:
            query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            with games._here.control.transaction() as c:
                return set(c.exec_driver_sql(query).scalars())

        before = sessions()
        for calls in (False, True):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    if calls:
                        assert sessions() > before
                    games.close()
                    code = 0
                finally:
                    os._exit(code)
            assert waited(pid) == 0
        assert sessions() >= before


def test_a_move_at_rest_stops_writes_until_it_is_cut_over(config: Path) -> None:
    with commands.Project(config, "test") as project:
        owner = Owner(project, Phase.DUAL_WRITE, live=False)
        with opened(config) as games, opened(config, HASTY) as hasty:
            with pytest.raises(Stopped, match="at rest"):
                hasty.put("1", {})
            owner.run = owner.control.advance(owner.run, Phase.SHADOW_READ)
            owner.flip("target")
            owner.release()
            until(lambda: games._here.follower.standing.primary == "target")
            games.put("1", {})
    assert side(config, "target") == {"1": {}}


def test_who_is_waited_for() -> None:
    """An owner's clock, not a gateway's, says when a lease ran out (R14)."""
    now = 0.0
    watch = Watch(lambda: now, lambda holder: "pid" in holder)
    holder = json.dumps({})
    busy = GatewayLease("busy", "Game", holder, 1, 2.0, "r", Phase.DUAL_WRITE, 1, 0, 0)
    still, gone = (
        replace(busy, instance="still"),
        replace(busy, instance="gone", holder='{"pid": 1}'),
    )
    done = replace(busy, instance="done", acknowledged=1)

    def sort(*leases: GatewayLease) -> tuple[list[str], list[str]]:
        waiting, lapsed = watch.sort(leases, lambda lease: lease.acknowledged == 1)
        return [w.instance for w in waiting], [x.instance for x in lapsed]

    assert sort(busy, still, gone, done) == (["busy", "still"], ["gone"])
    now = 1.9
    assert sort(replace(busy, counter=2), still, done) == (["busy", "still"], [])
    now = 2.0
    assert sort(replace(busy, counter=2), still, done) == (["busy"], ["still"])
    # A renewal that was under way all the time: it looked after that, and has seen the change.
    assert sort(replace(busy, counter=2), replace(still, counter=2)) == (["busy", "still"], [])


def test_a_control_database_of_the_past_stops_writes(config: Path, owner: Owner) -> None:
    with opened(config, HASTY) as games:
        owner.arm()
        owner.fence()
        owner.flip("target")
        owner.release()
        until(lambda: games._here.follower.standing == owner.gateways.standing("Game"))
        # As a backup of before the swap would have it (R15).
        with owner.control.transaction() as c:
            c.execute(t.run.update().values(epoch=1, primary_side="source"))
        until(lambda: "epoch 1" in games._here.follower._why)
        until(lambda: not games._here.follower._may())
        with pytest.raises(Stopped, match="epoch 1, and this gateway has seen 2"):
            games.put("1", {"lost": True})
    assert side(config, "source") == side(config, "target") == {}


def test_a_gateway_that_slept_through_a_whole_revision_writes_where_that_led(
    config: Path,
) -> None:
    """Neither its scripts nor its lease are of today when it wakes up."""
    with commands.Project(config, "test") as project:
        commands.apply(project, commands.plan(project, "0001"))
        commands.finish(project, "0001", keep_source=True)
        with opened(config, LASTING) as games:
            lease = games._here.follower
            gateways.Gateways(project.control).leave([lease.instance])  # an owner saw it run out
            (config.parent / "migrations" / "0002_third.py").write_text(
                '"""Another place."""\n\nfrom migrator import At, Move\n\n'
                'revision, down_revision = "0002", "0001"\n\n'
                'move = Move("Game", target=At("old", "third"))\n'
            )
            with commands.Project(config, "test") as later:
                commands.apply(later, commands.plan(later, "0002"))
                commands.finish(later, "0002", keep_source=True)
                lease._renew(boot_clock())
                games.put("1", {"id": "1"})
                third = later.stores.get("old").collection("Game", At("old", "third"))
                assert contents(third) == {"1": {"id": "1"}}
        assert contents(target(project)) == {}
