"""The mirror guards the disks of the stores it reads: what feeds keep is told, and has a bound."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bson
import pytest
from pymongo.errors import OperationFailure

from migrator import commands
from migrator.cli.metrics import Collector
from migrator.commands import live
from migrator.commands.feeds import feed_bound
from migrator.commands.records import RunStatus
from migrator.engine.guard import Bounds, Guard, share
from migrator.engine.positions import scan_from_start
from migrator.errors import Interrupted, Refused, Transient
from migrator.journal import Journal, Keeping, Kept
from migrator.model.block import Aggregate, Block, cut
from migrator.model.move import At, Layout
from migrator.model.phase import Phase
from migrator.render.runs import status_lines
from migrator.state import LiveState, keep_pace
from migrator.stores.mongo.journal import MongoJournal
from migrator.stores.sqlite.collection import EntriesCollection
from tests.ending import joined
from tests.system import kit
from tests.system.kit import Shop, Urls
from tests.system.test_live import until as until_

GAMES = 20
LONG = 150.0  # as long as a loaded machine may take
until = partial(until_, seconds=LONG)


@pytest.mark.parametrize(
    ("kept", "part"),
    [
        (Kept(), 0.0),
        (Kept(25), 0.25),
        (Kept(25, room=75), 0.25),
        (Kept(25, room=25), 0.5),  # the server gives it up sooner than we do
        (Kept(25, room=-5), 1.0),
        (Kept(0, room=0), 0.0),
        (Kept(window=3600.0), 0.0),
    ],
)
def test_how_much_of_what_it_may_a_feed_keeps(kept: Kept, part: float) -> None:
    assert share(kept, 100) == part


def test_a_guard_goes_on_whatever_it_met(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.engine.guard._BEAT", 0.01)
    beats = iter([RuntimeError("odd"), RuntimeError("again")])
    done = threading.Event()

    def still_there(_: object) -> None:
        for error in beats:
            raise error
        done.set()

    scene = SimpleNamespace(lease=SimpleNamespace(check=lambda: None))
    telling = SimpleNamespace(still_there=still_there)
    guard = Guard(scene, [], telling, Bounds(1))  # type: ignore[arg-type]
    guard.begin()
    try:
        assert done.wait(10)
    finally:
        guard.end()


# ---------------------------------------------------------------------- what servers tell


@pytest.fixture
def journals(urls: Urls, tmp_path: Path) -> Iterator[dict[str, Journal]]:
    """A prepared feed of each system that has one, over a collection of its own."""
    name = kit.fresh("kept")
    places = {"postgresql": "entries", "mariadb": "entries", "embedded": None}
    shop = Shop(tmp_path, {n: urls(None if n == "embedded" else n, n) for n in places})
    found: dict[str, Any] = {}
    with shop.open() as project:
        sides = []
        for store, layout in places.items():
            at = At(store, name, layout=Layout(layout) if layout else None)
            sides.append(side := project.stores.get(store).collection("Game", at))
            side.create()
            found[store] = side.journal(f"{name}_r")  # type: ignore[attr-defined]
            found[store].prepare()
        yield found
        for side, journal in zip(sides, found.values(), strict=True):
            journal.drop()
            side.drop()


def test_servers_tell_what_they_keep(journals: dict[str, Journal]) -> None:
    kept = {}
    for name, journal in journals.items():
        assert isinstance(journal, Keeping)
        kept[name] = journal.kept()
    slot, log, outbox = kept.values()
    assert slot is not None
    assert slot.size >= 0
    assert slot.window is None
    assert log is not None
    assert log.size == 0
    assert outbox == Kept(0)
    for name in ("postgresql", "mariadb", "embedded"):
        journals[name].drop()
        again = journals[name]
        assert isinstance(again, Keeping)
        assert again.kept() is None


class _Mongod:
    """The few answers of a mongod; what stands in for it here reads all of its oplog for them."""

    def __init__(self, first: int, may: bool = True) -> None:
        self.client = self.admin = self
        self.first = first
        self.may = may

    def __getitem__(self, name: str) -> _Mongod:
        return self

    def command(self, name: str) -> dict[str, object]:
        return {"lastWrite": {"opTime": {"ts": bson.Timestamp(90_000, 1)}}}

    def find_one(self, *_: object) -> dict[str, object]:
        if not self.may:
            raise OperationFailure("not authorized on local", 13)
        return {"ts": bson.Timestamp(self.first, 1)}


def test_an_oplog_is_as_long_as_it_reaches_back_where_that_may_be_read() -> None:
    server: Any = _Mongod(3_600)
    assert MongoJournal(server, "games", "run", "docs:games").kept() == Kept(window=86_400)
    server = _Mongod(3_600, may=False)
    assert MongoJournal(server, "games", "run", "docs:games").kept() == Kept()


# ---------------------------------------------------------------------- a feed that grows


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Games between two embedded stores; a feed may keep next to nothing."""
    made = Shop(tmp_path, {"old": "embedded:///old.db", "new": "embedded:///new.db"})
    made.config.write_text(
        made.config.read_text().replace("[env.test]", "[env.test]\nfeed_gb = 2e-7")
    )
    made.script("move = " + kit.move("Game", "At('old', 'games')", "At('new', 'games')"))
    with made.open() as project:
        side = project.stores.get("old").collection("Game", At("old", "games"))
        kit.fill(side, [(str(n), {"id": str(n), "n": 0}) for n in range(GAMES)])
    return made


def _put(project: commands.Project, keys: Iterator[str] | list[str]) -> None:
    side = project.stores.get("old").collection("Game", At("old", "games"))
    rules = side.at.rules("Game")
    side.write([cut(Aggregate(key, {"id": key, "n": 1}), rules) for key in keys])


def _status(project: commands.Project) -> RunStatus:
    (found,) = commands.status(project, "0001")
    return found


def _lines(run: RunStatus) -> str:
    return "\n".join(line.text for line in status_lines([run], str))


@pytest.fixture
def down(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """While it is set, the target takes no writes; feeds are looked at all the time."""
    flag, write = threading.Event(), EntriesCollection.write

    def refuses(self: EntriesCollection, blocks: Sequence[Block]) -> int:
        if flag.is_set() and self.at.store == "new":
            raise Transient("it does not answer", where=str(self.at))
        return write(self, blocks)

    monkeypatch.setattr(EntriesCollection, "write", refuses)
    monkeypatch.setattr(live, "_bounds", lambda project: Bounds(feed_bound(project), every=0.1))
    return flag


@contextmanager
def _mirror(shop: Shop) -> Iterator[None]:
    """A mirror in a thread of this process."""
    stop = threading.Event()

    def run() -> None:
        with shop.open() as project, suppress(Interrupted):
            commands.mirror(project, "0001", stop=stop)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        joined(thread)


def test_a_feed_that_keeps_too_much_is_given_up_while_the_target_does_not_answer(
    shop: Shop, down: threading.Event
) -> None:
    with shop.open() as project:
        plan = commands.plan(project, "0001", live=True)
        commands.apply(project, plan, until=Phase.SHADOW_READ)
        down.set()
        with _mirror(shop):
            _put(project, ["first"])
            waiting = until(lambda: _waiting(project))
            assert "it waits for new:games: it does not answer" in _lines(waiting)
            assert "mirror running" in _lines(waiting)
            _put(project, [f"more-{n}" for n in range(50)])
            given_up = until(lambda: _events(project, "feed given up") or None)[0]
            with sqlite3.connect(shop.root / "old.db") as source:
                ours = "SELECT name FROM sqlite_master WHERE name LIKE 'migrator%outbox'"
                assert source.execute(ours).fetchall() == []
            _put(project, ["unseen"])
            down.clear()
            until(lambda: _events(project, "scanned anew") or None)
            (found,) = commands.verify_run(project, "0001")
    assert found.clean, found.told
    assert found.equal == GAMES + 52
    assert given_up["side"] == "source"
    assert given_up["size"] > given_up["bound"] == 200


def _waiting(project: commands.Project) -> RunStatus | None:
    found = _status(project)
    return found if found.live and found.live.waits else None


def _events(project: commands.Project, event: str) -> list[Any]:
    return [each["detail"] for each in commands.events(project, "0001") if each["event"] == event]


def test_without_a_mirror_the_servers_are_asked(shop: Shop) -> None:
    with shop.open() as project:
        plan = commands.plan(project, "0001", live=True)
        commands.apply(project, plan, until=Phase.SHADOW_READ)
        with project.control.transaction() as c:
            c.exec_driver_sql("UPDATE migrator_mirror SET at = at - 3600")
        _put(project, [f"more-{n}" for n in range(10)])
        run = _status(project)
        assert run.live is not None
        (source, _) = run.live.feeds
        assert (source.side, source.bound) == ("source", 200)
        assert source.size > 400
        assert source.share > 1
        assert "on its disk, and no mirror is there to give it up" in _lines(run)
        told = {
            (sample.name, sample.labels["side"]): sample.value
            for metric in Collector(project, run.run).collect()
            if metric.name.startswith("migrator_feed")
            for sample in metric.samples
        }
        assert told["migrator_feed_size_bytes", "source"] > 400
        assert told["migrator_feed_bound_bytes", "source"] == 200


def test_a_comparison_of_both_sides_goes_at_the_pace_that_was_said(shop: Shop) -> None:
    with shop.open() as project:
        plan = commands.plan(project, "0001", live=True)
        commands.apply(project, plan, until=Phase.SHADOW_READ)
        run = project.control.run("0001").id
        with pytest.raises(Refused, match="nothing left to copy"):
            commands.pause(project, "0001")
        state = LiveState(project.control, run)
        held = state.position(0, "source")
        assert held is not None
        state.keep(0, "source", replace(held, scan=scan_from_start()))
        keep_pace(project.control, run, "paused", paused=True)
        with _mirror(shop):
            until(lambda: state.told()[1].get("scanning") or None)
            _put(project, ["touched"])
            target = project.stores.get("new").collection("Game", At("new", "games"))
            until(lambda: target.read(["touched"])[0])
            assert "compares both sides' keys anew (paused)" in _lines(_status(project))
            assert _events(project, "scanned anew") == []
            assert commands.throttle(project, "0001", 50).throttle == 50
            commands.resume(project, "0001")
            until(lambda: _events(project, "scanned anew") or None)
