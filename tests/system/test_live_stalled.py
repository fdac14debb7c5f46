"""A server of the source that answers no more, without a word: SIGTERM ends the mirror all the
same, and what comes after it goes on."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from migrator import commands
from migrator.bootstrap import factory
from migrator.model.phase import Phase
from migrator.model.url import scheme
from migrator.ports import StoreSettings
from migrator.state import LiveState
from tests.ending import PYTHON, ended
from tests.system import kit, servers
from tests.system.between import between
from tests.system.kit import ENV, PLACES, Shop, Urls

BY_NAME = {place.name: place for place in PLACES}
# A mirror whose page gets one second after a SIGTERM.
MIRROR = """
import sys
from migrator.cli import main, signals

signals.PATIENCE = 1.0
sys.exit(main())
"""
# The same one, which waits for a lock on its control database, and tells before.
LOCKED = """
import sys
import alembic.command
from migrator.cli import main, signals
from migrator.state import database

signals.PATIENCE = 1.0
database._BUSY_SECONDS = 3_600
plain = database._upgrade

def upgrade(opened):
    print("waits", file=sys.stderr, flush=True)
    plain(opened)

database._upgrade = upgrade
sys.exit(main())
"""
LONG = 120.0
NAMES = ["entries-postgresql", "mongo-document"]


def _until(there: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG
    while not there():
        assert time.monotonic() < end
        time.sleep(0.01)


@contextmanager
def _mirror(shop: Shop, code: str = MIRROR) -> Iterator[subprocess.Popen[str]]:
    options = ["mirror", "--env", ENV, "--config", str(shop.config)]
    process = subprocess.Popen([*PYTHON, "-c", code, *options], stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        ended(process)


@pytest.mark.parametrize("name", NAMES)
def test_a_mirror_ends_though_the_server_of_the_source_does_not_answer(
    name: str, urls: Urls, tmp_path: Path
) -> None:
    place = BY_NAME[name]
    url, source = urls(place.server, place.store), kit.fresh("stalled")
    with between(url) as (silent, through):
        shop = Shop(tmp_path, {place.store: through, "new": "embedded:///new.db", "plain": url})
        at_ = place.script(source)
        shop.script(f"move = Move('Game', source={at_}, target=At('new', 'games'))")
        with shop.open() as project:
            side = project.stores.get("plain").collection("Game", place.at(source))
            kit.fill(side, [("1", {"id": "1"}), ("2", {"id": "2"})])
            plan = commands.plan(project, "0001", live=True)
            commands.apply(project, plan, until=Phase.DUAL_WRITE)
            live = LiveState(project.control, project.control.run("0001").id)
            before = live.told()
            with _mirror(shop) as process:
                _until(lambda: live.told() != before)
                silent.fall_silent()
                kit.fill(side, [("3", {"id": "3"})])
                _until(lambda: bool(silent.held))  # what the mirror asks for, now that it was told
                process.send_signal(signal.SIGTERM)
                _, told = ended(process)
            assert process.returncode == 130, told
            silent.go_on()
            commands.apply(project, plan, until=Phase.SHADOW_READ)
            (found,) = commands.verify_run(project, "0001")
            assert (found.equal, found.clean) == (3, True)
            commands.abort(project, "0001", drop_target=True)
            side.drop()


SIGNALS = [signal.SIGINT, signal.SIGTERM]
SHOP = {"old": "embedded:///old.db", "new": "embedded:///new.db"}
MOVE = "move = Move('Game', source=At('old', 'games'), target=At('new', 'games'))"


def _sleeps(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def _minds_signals(pid: int) -> bool:
    """Whether it has its own handler of the last signal that it takes one for."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (caught,) = (int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def _assert_told(told: str) -> None:
    """That it stopped, in a line or two."""
    lines = told.strip().splitlines()
    assert lines[0].startswith("stopped"), told
    assert len(lines) <= 2, told


def _begun(shop: Shop) -> None:
    with shop.open() as project:
        project.routes("0001")[0].source.create()
        plan = commands.plan(project, "0001", live=True)
        commands.apply(project, plan, until=Phase.DUAL_WRITE)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_mirror_ends_that_starts_while_its_control_database_does_not_answer(
    number: signal.Signals, database_url: servers.MakeDatabase, tmp_path: Path
) -> None:
    with between(database_url("postgresql", kit.fresh("control"))) as (silent, through):
        shop = Shop(tmp_path, SHOP)
        text = shop.config.read_text()
        shop.config.write_text(text.replace(f"[env.{ENV}]", f'[env.{ENV}]\ncontrol = "{through}"'))
        shop.script(MOVE)
        _begun(shop)
        silent.fall_silent()
        with _mirror(shop) as process:
            # What was held first may be the last words of who was there before.
            _until(lambda: _minds_signals(process.pid) and bool(silent.held))
            process.send_signal(number)
            _, told = ended(process)
        assert process.returncode == 130, told
        _assert_told(told)
        silent.go_on()
        with shop.open() as project:
            assert project.control.run("0001").phase is Phase.DUAL_WRITE
            commands.abort(project, "0001", drop_target=True)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_mirror_ends_that_starts_while_another_holds_its_control_database(
    number: signal.Signals, tmp_path: Path
) -> None:
    shop = Shop(tmp_path, SHOP)
    shop.script(MOVE)
    _begun(shop)
    with closing(sqlite3.connect(tmp_path / ".migrator" / f"{ENV}.db", timeout=60)) as holder:
        with holder:
            holder.execute("UPDATE migrator_state_version SET version_num = '0001'")
        holder.execute("BEGIN IMMEDIATE")
        with _mirror(shop, LOCKED) as process:
            assert process.stderr is not None
            assert process.stderr.readline() == "waits\n"
            _until(lambda: _sleeps(process.pid))
            process.send_signal(number)
            _, told = ended(process)
    assert process.returncode == 130, told
    _assert_told(told)


@pytest.mark.parametrize("name", ["entries-postgresql", "entries-mariadb", "mongo-document"])
def test_a_store_is_closed_though_its_server_does_not_answer(name: str, urls: Urls) -> None:
    place = BY_NAME[name]
    with between(urls(place.server, place.store)) as (silent, through):
        store = factory(scheme(through))(StoreSettings("store", through))
        store.ping()
        silent.fall_silent()
        closing_ = threading.Thread(target=store.close, daemon=True)
        closing_.start()
        closing_.join(LONG)
        assert not closing_.is_alive()
