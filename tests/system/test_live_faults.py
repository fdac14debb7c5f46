"""What may be wrong with a live move, or go wrong while it lasts: each is told in words, and
nothing is lost."""

from __future__ import annotations

import itertools
import re
import resource
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import bson
import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from migrator import commands, tables
from migrator.commands import SwapTerms, Terms
from migrator.engine import points
from migrator.errors import Failed, MigratorError, Refused, Waiting
from migrator.gateway import Gateway
from migrator.gateway import Terms as GatewayTerms
from migrator.journal import journal_name
from migrator.model.block import Aggregate, Block, cut, join
from migrator.model.move import At
from migrator.model.phase import Phase
from migrator.ports import Collection, StoreSettings
from migrator.state import LiveState, Position
from migrator.stores import sql
from migrator.stores.mongo.journal import MongoJournal
from tests.system import kit
from tests.system.application import mirroring
from tests.system.dying import FORKED, joined
from tests.system.kit import Shop, Urls
from tests.system.test_live import Game, at_last, game
from tests.system.test_live import until as until_

__all__ = ["game"]
GAMES = 20
LONG = 150.0  # as long as a loaded machine may take
until = partial(until_, seconds=LONG)
# The fence of the embedded store stops all writes; one core less is no reason to give up.
TERMS = Terms(swap=SwapTerms(bound=60, lag=20))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Games between two embedded stores, and room for each test's own faults."""
    made = Shop(tmp_path, {"old": "embedded:///old.db", "new": "embedded:///new.db"})
    made.script("move = " + kit.move("Game", "At('old', 'games')", "At('new', 'games')"))
    with made.open() as project:
        kit.fill(_side(project, "old"), [(str(n), {"id": str(n), "n": 0}) for n in range(GAMES)])
    return made


def _side(project: commands.Project, store: str, name: str = "games") -> Collection:
    return project.stores.get(store).collection("Game", kit.At(store, name))


def _put(project: commands.Project, key: str, number: int) -> None:
    side = _side(project, "old")
    side.write([cut(Aggregate(key, {"id": key, "n": number}), side.at.rules("Game"))])


def _apply(project: commands.Project, phase: Phase) -> commands.Applied:
    run = commands.unfinished(project, "0001")
    plan = commands.frozen_plan(run) if run else commands.plan(project, "0001", live=True)
    assert plan.errors == []
    return commands.apply(project, plan, until=phase, terms=TERMS)


def _events(project: commands.Project, event: str) -> list[Any]:
    return [each["detail"] for each in commands.events(project, "0001") if each["event"] == event]


def _told(project: commands.Project, event: str) -> Callable[[], list[Any] | None]:
    return lambda: _events(project, event) or None


def _assert_equal(project: commands.Project) -> None:
    """With a mirror at work: both sides hold the same."""
    (found,) = commands.verify_run(project, "0001")
    assert found.clean, found.told


# ---------------------------------------------------------------------- feeds that can't be had


class _Standalone:
    """A mongod that is no member of a replica set; what stands in for one here always is."""

    def command(self, name: str) -> dict[str, object]:
        return {"isWritablePrimary": True}


def test_a_mongod_alone_has_no_feed_and_says_what_to_do() -> None:
    server: Any = _Standalone()
    journal = MongoJournal(server, "games", "run", "docs:games")
    (found,) = journal.findings()
    with pytest.raises(Refused) as refused:
        journal.prepare()
    assert "replica set of one member" in refused.value.hint
    assert found == ("error", "standalone", f"{refused.value.what}; {refused.value.hint}")


@pytest.mark.parametrize("right", ["REPLICATION", "NOREPLICATION"])
def test_a_table_of_somebody_else_is_named_where_it_can_not_be_followed(
    urls: Urls, right: str
) -> None:
    name, role = kit.fresh("owned"), kit.fresh("reader")
    url = make_url(urls("postgresql", ""))
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as owner:
        owner.execute(f"CREATE TABLE {name} (id text PRIMARY KEY, v int)".encode())
        owner.execute(f"CREATE ROLE {role} LOGIN {right} PASSWORD 'plain'".encode())
        try:
            owner.execute(f"GRANT SELECT ON {name} TO {role}".encode())
            owner.execute(f"GRANT CREATE ON DATABASE {url.database} TO {role}".encode())
            owner.execute(f"GRANT ALL ON SCHEMA public TO {role}".encode())
            plain = url.set(username=role, password="plain").render_as_string(hide_password=False)
            store = sql.open_store(StoreSettings("shop", plain))
            journal: Any = store.collection("Game", At("shop", tables(name))).journal(name)  # type: ignore[attr-defined]
            (told,) = [found for found in journal.findings() if found[0] == "error"]
            assert told[1] == "table-owner"
            assert name in told[2]
            with pytest.raises(MigratorError, match=r"must be owner|permission denied") as refused:
                journal.prepare()
            assert name in str(refused.value)
            assert owner.execute(_SLOTS, [name]).fetchall() == []
            owner.execute(told[2].partition("; ")[2].encode())  # what it says is what helps
            assert not [found for found in journal.findings() if found[0] == "error"]
            journal.prepare()
            journal.drop()
            store.close()
        finally:
            owner.execute(f"DROP TABLE {name}".encode())
            owner.execute(f"REVOKE ALL ON DATABASE {url.database} FROM {role}".encode())
            owner.execute(f"REVOKE ALL ON SCHEMA public FROM {role}".encode())
            owner.execute(f"DROP ROLE {role}".encode())


_SLOTS = "SELECT slot_name FROM pg_replication_slots WHERE slot_name = %s"

# ---------------------------------------------------------------------- feeds that are gone


def test_an_outbox_that_somebody_dropped_is_made_anew_and_both_sides_compared(shop: Shop) -> None:
    with shop.open() as project:
        _apply(project, Phase.SHADOW_READ)
        with mirroring(shop):
            _drop_outbox(shop.root / "old.db")
            _put(project, "unseen", 1)
            until(_told(project, "scanned anew"))
            (lost,) = _events(project, "feed lost")
            _assert_equal(project)
        assert _side(project, "new").read(["unseen"]) != [None]
    assert lost["side"] == "source"
    assert "outbox was removed" in lost["why"]


def test_what_applications_wrote_is_no_foreign_write_where_the_mirrors_outbox_was_dropped(
    shop: Shop,
) -> None:
    with shop.open() as project:
        _apply(project, Phase.SHADOW_READ)
        new = _side(project, "new")
        with mirroring(shop):
            for key in ("6", "7"):
                _put(project, key, 1)  # so that the mirror knows what it has left there
            until(lambda: all(_number(each) == 1 for each in new.read(["6", "7"])) or None)
            _drop_outbox(shop.root / "new.db")
            new.write([cut(Aggregate("7", {"id": "7", "n": 77}), new.at.rules("Game"))])
            for key in ("6", "8"):
                _put(project, key, 2)
            until(_told(project, "scanned anew"))
            _assert_equal(project)
        (told,) = _events(project, "foreign write")
        assert (told["key"], "n: 77" in str(told["paths"])) == ("Game:7", True)
        assert _events(project, "feed lost")[0]["side"] == "target"


def _number(block: Block | None) -> object:
    assert block is not None
    value = join(block).value
    return value["n"]


def test_a_block_that_can_not_be_read_is_set_aside_and_the_others_go_on(shop: Shop) -> None:
    with shop.open() as project:
        _apply(project, Phase.SHADOW_READ)
        with mirroring(shop):
            (before,) = _side(project, "new").read(["7"])
            _damage(shop, "old.db", "7")
            (item,) = until(lambda: commands.quarantine(project, "0001") or None)
            assert (item.shown, "can't be read" in item.reason) == ("Game:7", True)

            _damage(shop, "new.db", "8")
            for key in ("6", "8"):
                _put(project, key, 1)
            (found,) = commands.verify_run(project, "0001")
            assert (found.clean, found.quarantined) == (True, 1), found.told
            # Of what can't be read the last copy stays.
            assert _side(project, "new").read(["7"]) == [before]

        with mirroring(shop):  # another one comes to the same block
            with pytest.raises(Waiting, match="1 blocks are in quarantine: Game:7"):
                commands.cutover(project, "0001", swap=TERMS.swap)
            accepted = SwapTerms(bound=60, lag=20, accept_keys=("Game:7",))
            done = commands.cutover(project, "0001", swap=accepted)
            assert (done.phase, done.primary) == ("cut_over", "target")

        with mirroring(shop):  # what the new side holds counts from here on
            until(lambda: None if commands.quarantine(project, "0001") else True)
            _assert_equal(project)


def test_writers_go_on_where_they_were_while_the_mirror_waits_for_a_store(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drain's last turn does not come back within the bound: another thread undoes it."""
    waited: list[bool] = []

    def hook(point: str) -> None:
        if point == "swap.raised":
            _put(project, "late", 1)
        elif point == "mirror.write" and project.control.run("0001").fence:
            until(lambda: project.control.run("0001").fence == "" or None)
            with sqlite3.connect(shop.root / "old.db", timeout=LONG) as plain:
                (found,) = plain.execute("SELECT id FROM collections WHERE name = 'games'")
                touch = f"UPDATE entries_{found[0]} SET value = value WHERE block = '7'"
                waited.append(plain.execute(touch).rowcount > 0)

    with shop.open() as project:
        _apply(project, Phase.SHADOW_READ)
        monkeypatch.setattr(points, "hook", hook)
        while not waited:  # a busy machine may take longer to raise the fence
            with pytest.raises(MigratorError) as undone:
                commands.cutover(project, "0001", swap=SwapTerms(bound=1, lag=20))
        assert "for more than 1 s: undone" in undone.value.what
        run = project.control.run("0001")
        assert (waited, run.phase, run.primary, run.fence) == (
            [True], Phase.SHADOW_READ, "source", "",
        )  # fmt: skip
        monkeypatch.setattr(points, "hook", None)
        assert commands.cutover(project, "0001", swap=TERMS.swap).primary == "target"


def _damage(shop: Shop, file: str, key: str) -> None:
    """Let somebody write what is no value, past everybody."""
    with sqlite3.connect(shop.root / file, timeout=LONG) as plain:
        (number,) = plain.execute("SELECT id FROM collections WHERE name = 'games'").fetchone()
        broken = f"UPDATE entries_{number} SET value = x'c1' WHERE block = ?"
        assert plain.execute(broken, (key,)).rowcount


def _drop_outbox(file: Path) -> None:
    """Drop an outbox with its triggers, all at once: a mirror would make some anew meanwhile."""
    with closing(sqlite3.connect(file, timeout=LONG, isolation_level=None)) as plain:
        plain.execute("BEGIN IMMEDIATE")
        ours = "SELECT type, name FROM sqlite_master WHERE name LIKE 'migrator%outbox%'"
        for kind, name in plain.execute(f"{ours} AND type <> 'index'").fetchall():
            plain.execute(f"DROP {kind} {name}")
        plain.execute("COMMIT")


def test_a_slot_that_somebody_dropped_is_made_anew_and_both_sides_compared(game: Game) -> None:
    game.apply(Phase.SHADOW_READ)
    with game.shop.open() as project:
        slot = journal_name(project.control.run("0001").id, 0, "source")
        with mirroring(game.shop):
            _drop(game.tables.session.execute, slot)
            until(_told(project, "scanned anew"))
            lost = _events(project, "feed lost")[0]
            game.assert_nothing_lost()
    assert lost["side"] == "source"
    assert slot in lost["why"]


def _drop(do: Callable[..., Any], slot: str) -> None:
    """Drop a slot, as somebody who wants his disk back; its reader comes again at once."""
    there = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s"
    while (row := do(there, [slot]).fetchone()) is not None:
        if row[0] is not None:
            do("SELECT pg_terminate_backend(%s)", row)
        with suppress(psycopg.errors.ObjectInUse):
            do("SELECT pg_drop_replication_slot(%s)", [slot])
            return


def test_a_token_that_the_oplog_has_outlived_means_a_comparison(tmp_path: Path, urls: Urls) -> None:
    name = kit.fresh("expired")
    shop = Shop(tmp_path, {"docs": urls("mongodb", ""), "new": "embedded:///new.db"})
    shop.script("move = " + kit.move("Game", f"At('docs', '{name}')", "At('new', 'games')"))
    with shop.open() as project:
        documents = _side(project, "docs", name)
        kit.fill(documents, [(str(n), {"id": str(n), "n": 0}) for n in range(GAMES)])
        _apply(project, Phase.SHADOW_READ)
        kit.fill(documents, [("unseen", {"id": "unseen", "n": 1})])
        live = LiveState(project.control, project.control.run("0001").id)
        held = live.position(0, "source")
        assert held is not None
        live.keep(0, "source", Position(_aged(held.feed)))
        with mirroring(shop):
            until(_told(project, "scanned anew"))
            _assert_equal(project)
        assert _side(project, "new").read(["unseen"]) != [None]
        (lost,) = _events(project, "feed lost")
        assert "the oplog no longer reaches back" in lost["why"]
        commands.abort(project, "0001", drop_target=True)
        documents.drop()


def _aged(position: Any) -> Any:
    """The same position, years ago."""
    token = bson.decode(bytes.fromhex(position["token"]["_data"]))
    # The number 0 is before any oplog, also one that has never dropped anything.
    old = {**token, "s": 0, "t": bson.Timestamp(1_000_000_000, 1)}
    return {**position, "token": {"_data": bson.encode(old).hex()}}


# ---------------------------------------------------------------------- the control database


def test_a_full_disk_under_the_control_database_stops_and_loses_nothing(shop: Shop) -> None:
    with shop.open() as project:
        _apply(project, Phase.SHADOW_READ)
        run = project.control.run("0001")
        with _full(project):
            with pytest.raises(Failed, match="full") as failed:
                commands.cutover(project, "0001", swap=TERMS.swap)
            assert "free disk space" in failed.value.hint
            _put(project, "meanwhile", 1)  # the application's own store is not concerned
            assert project.control.run(run.id) == run
        assert commands.cutover(project, "0001", swap=TERMS.swap).primary == "target"
        assert _side(project, "new").read(["meanwhile"]) != [None]
        with mirroring(shop):
            _assert_equal(project)


def test_a_mirror_under_which_the_disk_fills_ends_and_the_next_goes_on(shop: Shop) -> None:
    with shop.open() as project:
        _apply(project, Phase.SHADOW_READ)
        _put(project, "before", 1)
    said, told = FORKED.Pipe(duplex=False)
    process = FORKED.Process(target=_mirror_on_a_full_disk, args=(shop.config, told))
    process.start()
    assert said.poll(LONG)
    what, hint = said.recv()
    joined(process, LONG)
    assert what.startswith("control database: ")
    assert "what is free on it" in hint
    with shop.open() as project:
        _put(project, "meanwhile", 1)
        with mirroring(shop):
            _assert_equal(project)
        assert None not in _side(project, "new").read(["before", "meanwhile"])


def _mirror_on_a_full_disk(config: Path, told: Any) -> None:
    """Mirror a write, and find no room on any disk to note that it is done."""

    def fill(point: str) -> None:
        if point == "mirror.written":
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))

    points.hook = fill
    try:
        with commands.Project(config, kit.ENV) as project:
            commands.mirror(project, "0001")
    except MigratorError as error:
        told.send((str(error), error.hint))


class _full:
    """A control database whose disk has no room left for one more record."""

    def __init__(self, project: commands.Project) -> None:
        self.project = project
        self.engine = project.control.engine

    def _limit(self, pages: int) -> None:
        self.engine.dispose()
        sa.event.remove(self.engine, "connect", self._set) if self._listening() else None
        self.pages = pages
        sa.event.listen(self.engine, "connect", self._set)

    def _listening(self) -> bool:
        return sa.event.contains(self.engine, "connect", self._set)

    def _set(self, connection: Any, _record: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {self.pages}")

    def __enter__(self) -> None:
        with self.engine.connect() as c:
            pages = c.exec_driver_sql("PRAGMA page_count").scalar_one()
        self._limit(pages)
        size = 4000
        while size:
            try:
                self.project.control.record("filler", "filler", text="x" * size)
            except Failed:
                size //= 2

    def __exit__(self, *_: object) -> None:
        self._limit(1_000_000)


def test_a_gateway_of_an_older_version_is_refused(shop: Shop) -> None:
    with shop.open() as project:
        _apply(project, Phase.SHADOW_READ)
    with sqlite3.connect(shop.root / ".migrator" / f"{kit.ENV}.db", timeout=LONG) as control:
        control.execute("UPDATE migrator_state_version SET version_num = '9999'")
    with pytest.raises(Refused, match="9999") as refused:
        Gateway.open("Game", shop.config, kit.ENV)
    assert "newer Migrator" in refused.value.hint


def test_a_gateway_of_another_version_keeps_the_sides_from_being_swapped(shop: Shop) -> None:
    patient = GatewayTerms(bound=LONG)
    with (
        shop.open() as project,
        Gateway.open("Game", shop.config, kit.ENV, terms=patient) as gateway,
    ):
        _apply(project, Phase.SHADOW_READ)
        gateway.put("mine", {"id": "mine", "n": 1})
        known = _versions(project, '"version": "0001"')
        with pytest.raises(Waiting, match="another version of Migrator") as waiting:
            commands.cutover(project, "0001", swap=TERMS.swap)
        assert "goes on writing" in waiting.value.hint
        gateway.put("mine", {"id": "mine", "n": 2})
        _versions(project, known)
        # Again where a busy machine did not let it renew its lease in time.
        done = at_last(lambda: commands.cutover(project, "0001", swap=TERMS.swap))
        assert done.primary == "target"
        assert gateway.get("mine").value["n"] == 2


def _versions(project: commands.Project, version: str) -> str:
    """Let every gateway say that it is of this version; what they said before."""
    with project.control.transaction() as c:
        query = "SELECT holder FROM migrator_gateway"
        before = c.exec_driver_sql(query).scalars().first()
        told = re.search('"version": "[0-9]+"', str(before))
        assert told is not None
        query = "UPDATE migrator_gateway SET holder = replace(holder, ?, ?)"
        c.exec_driver_sql(query, (told[0], version))
    return told[0]


# ---------------------------------------------------------------------- clocks


@pytest.fixture(params=[-3600, 3600])
def wild(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Lets the wall clock of this process leap by an hour whenever it is looked at."""
    real, looks = time.time, itertools.count(1)

    def leaps() -> float:
        return real() + next(looks) * float(request.param)

    return lambda: monkeypatch.setattr(time, "time", leaps)


def test_a_clock_that_jumps_changes_nothing_for_who_asks(
    shop: Shop, wild: Callable[[], None]
) -> None:
    with shop.open() as project:
        _apply(project, Phase.SHADOW_READ)
        with mirroring(shop):
            wild()
            _put(project, "before", 1)
            assert commands.cutover(project, "0001", swap=TERMS.swap).primary == "target"
            assert commands.rollback(project, "0001", swap=TERMS.swap).primary == "source"
            _put(project, "after", 2)
            _assert_equal(project)


def test_a_clock_that_jumps_changes_nothing_for_the_mirror(
    shop: Shop, wild: Callable[[], None]
) -> None:
    with shop.open() as project:
        wild()
        _apply(project, Phase.SHADOW_READ)
        assert commands.cutover(project, "0001", swap=TERMS.swap).primary == "target"
        assert commands.rollback(project, "0001", swap=TERMS.swap).primary == "source"
        _put(project, "after", 2)
    with shop.open() as project, mirroring(shop):
        _assert_equal(project)
