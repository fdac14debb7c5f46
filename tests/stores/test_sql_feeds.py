"""Feeds of servers of the tests' own: races made certain, lost logs, missing rights."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest

from migrator import tables
from migrator.errors import FeedLost, Refused, Terminal, Transient
from migrator.journal import Journal, Numbering
from migrator.model.block import Block
from migrator.model.move import At
from migrator.model.rules import assemble
from migrator.ports import StoreSettings
from migrator.stores import sql
from migrator.stores.sql import journal_postgresql
from migrator.stores.sql.journal_postgresql import PostgresqlJournal, widened
from migrator.stores.sql.live_postgresql import OfEntries, OfTables
from migrator.stores.sql.outbox_postgresql import OutboxJournal
from migrator.stores.sql.stream_postgresql import Stream
from migrator.stores.sql.tables import TablesCollection
from tests.conftest import server_url
from tests.contract.own_redis import free_port
from tests.ending import joined

_SCRIPT = Path(__file__).parents[2] / "scripts" / "services"
_NAMES = ("postgresql", "mariadb")
_GAMES = At("store", tables("games", key="id"), ["/Game/*"])
EPOCH = 3


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Servers that nobody else uses, by name."""
    for name in _NAMES:
        server_url(name)  # where the shared one is absent, ours could not be started either
    ports = {name: free_port() for name in _NAMES}
    environment = {
        **os.environ,
        "MIGRATOR_SERVICES_DIR": str(tmp_path_factory.mktemp("services")),
        **{f"MIGRATOR_{name.upper()}_PORT": str(port) for name, port in ports.items()},
    }

    def do(command: str, *names: str) -> str:
        done = subprocess.run(
            [sys.executable, str(_SCRIPT), command, *(names or ports), "--format", "json"][
                : None if command == "status" else -2
            ],
            env=environment, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        return done.stdout

    user = "migrator:migrator@127.0.0.1"
    found = {
        "postgresql": f"postgresql://{user}:{ports['postgresql']}/postgres",
        "mariadb": f"mariadb://{user}:{ports['mariadb']}/shop",
    }
    do("up")
    with psycopg.connect(found["postgresql"]) as connection:
        ((data,),) = connection.execute("SHOW data_directory").fetchall()
    do("down", "postgresql")
    _age(Path(data))
    do("up", "postgresql")
    end = time.monotonic() + 60
    while {each["state"] for each in json.loads(do("status"))} != {"running"}:
        assert time.monotonic() < end, do("status")
    yield found
    do("kill")


def _age(data: Path) -> None:
    """Let PostgreSQL count its transactions in a later epoch: their numbers pass 32 bits."""
    program, owner = Path((data / "postmaster.opts").read_text().split()[0]), data.stat()
    root = os.geteuid() == 0
    subprocess.run(
        [program.with_name("pg_resetwal"), "-e", str(EPOCH), "-D", data],
        check=True, capture_output=True, timeout=60, cwd=data,
        user=owner.st_uid if root else None, group=owner.st_gid if root else None,
    )  # fmt: skip


Run = Callable[[str], Any]


@pytest.fixture
def postgresql(urls: dict[str, str]) -> Iterator[Run]:
    with psycopg.connect(urls["postgresql"], autocommit=True) as connection:
        yield lambda statement: connection.execute(statement.encode())


@pytest.fixture
def mariadb(urls: dict[str, str]) -> Iterator[Run]:
    with _maria(urls["mariadb"], None) as connection:

        def run(statement: str) -> Any:
            cursor = connection.cursor()
            cursor.execute(statement)
            return cursor.fetchall()

        run("CREATE DATABASE IF NOT EXISTS shop")
        run("USE shop")
        yield run


def _maria(url: str, database: str | None = "shop", user: str = "migrator") -> Any:
    port = urlsplit(url).port or 0
    return pymysql.connect(
        host="127.0.0.1", port=port, user=user, password="migrator", database=database,
        autocommit=True,
    )  # fmt: skip


@contextmanager
def _games(url: str, run: Run) -> Iterator[tuple[TablesCollection, Journal]]:
    """A table of one game, which is followed."""
    run("DROP TABLE IF EXISTS games")
    run("CREATE TABLE games (id varchar(20) PRIMARY KEY, v integer)")
    run("INSERT INTO games VALUES ('a', 1)")
    store = sql.open_store(StoreSettings("store", url))
    collection = store.collection("Game", _GAMES)
    assert isinstance(collection, TablesCollection)
    journal = collection.journal("run")
    assert journal is not None
    try:
        yield collection, journal
    finally:
        journal.drop()
        store.close()


def _read(collection: TablesCollection) -> Any:
    (block,) = collection.read(["a"])
    assert block is not None
    aggregate = assemble(block.entries)
    assert isinstance(aggregate, dict)
    return aggregate["v"]


def _seen_at_the_touch(collection: TablesCollection, journal: Journal, start: Any) -> Any:
    """What a read gives right behind the touch."""
    feed = journal.open(start)
    end = time.monotonic() + 60
    try:
        while time.monotonic() < end:
            given = feed.poll(0.1)
            if given is not None and given.touches:
                return _read(collection)
    finally:
        feed.close()
    return "no touch"


def test_postgresql_shows_no_touch_before_its_write_can_be_read(
    urls: dict[str, str], postgresql: Run
) -> None:
    with _games(urls["postgresql"], postgresql) as (collection, journal):
        assert _early(urls, postgresql, collection, journal, waits=True) == 2


def _early(
    urls: dict[str, str],
    postgresql: Run,
    collection: TablesCollection,
    journal: Journal,
    *,
    waits: bool,
) -> Any:
    """What a read gives behind a touch whose write can't be read yet.

    ``waits``: the touch is held back until it can be, so that has to come to be by itself.
    """
    start = journal.prepare()
    postgresql("CREATE TABLE IF NOT EXISTS probe (n integer)")
    # A commit is in the log, and waits there for a standby that never comes.
    postgresql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    postgresql("SELECT pg_reload_conf()")

    def probe() -> None:
        with psycopg.connect(urls["postgresql"], autocommit=True) as connection:
            while not waiting.wait(0.01):
                connection.execute("INSERT INTO probe VALUES (1)")

    def write() -> None:
        with psycopg.connect(urls["postgresql"], autocommit=True) as connection:
            connection.execute("UPDATE games SET v = 2")

    def release() -> None:
        if waits:
            time.sleep(1)
        else:
            seen.wait(60)
        postgresql("ALTER SYSTEM RESET synchronous_standby_names")
        postgresql("SELECT pg_reload_conf()")

    seen, waiting = threading.Event(), threading.Event()
    threads = [threading.Thread(target=each) for each in (probe, write, release)]
    try:
        # The setting holds once a commit waits: the servers' processes read it one after another.
        threads[0].start()
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        end = time.monotonic() + 60
        while not postgresql(waits).fetchall() and time.monotonic() < end:
            time.sleep(0.01)
        waiting.set()
        for thread in threads[1:]:
            thread.start()
        return _seen_at_the_touch(collection, journal, start)
    finally:
        seen.set()
        waiting.set()
        joined(*threads)


def test_a_read_that_takes_a_transactions_number_for_whole_is_behind_the_touch(
    urls: dict[str, str], postgresql: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule taken out: the feed's 32 bits name one of the first epoch, long visible."""
    with _games(urls["postgresql"], postgresql) as (collection, journal):
        monkeypatch.setattr(journal_postgresql, "widened", lambda xid, near: xid)
        assert int(postgresql("SELECT pg_current_xact_id()::text").fetchone()[0]) >> 32 == EPOCH
        assert _early(urls, postgresql, collection, journal, waits=False) == 1


def test_a_mark_of_postgresql_comes_behind_writes_that_are_on_no_disk_yet(
    urls: dict[str, str], postgresql: Run
) -> None:
    with _games(urls["postgresql"], postgresql) as (_, journal):
        feed = journal.open(journal.prepare())
        postgresql("ALTER SYSTEM SET wal_writer_delay = '10s'")
        postgresql("SELECT pg_reload_conf()")
        with psycopg.connect(urls["postgresql"], autocommit=True) as application:
            application.execute("SET synchronous_commit = off")
            application.execute("UPDATE games SET v = 2")
        # It is acknowledged, and can be read: but an end of the log that is asked for now, by what
        # is on disk, may lie before it. Only a mark that was committed durably lies behind.
        assert postgresql("SELECT v FROM games").fetchall() == [(2,)]
        journal.mark("here")
        touched: list[Any] = []
        marks: list[str] = []
        end = time.monotonic() + 60
        while not marks and time.monotonic() < end:
            if (given := feed.poll(0.5)) is not None:
                touched += [touch.key for touch in given.touches]
                marks += given.marks
        feed.close()
        postgresql("ALTER SYSTEM RESET wal_writer_delay")
        postgresql("SELECT pg_reload_conf()")
        assert (touched, marks) == (["a"], ["here"])


def test_an_end_of_the_log_that_is_asked_for_lies_before_writes_that_are_on_no_disk_yet(
    urls: dict[str, str], postgresql: Run
) -> None:
    """The rule taken out: what is drained up to there lacks what was acknowledged."""
    with _games(urls["postgresql"], postgresql) as (_, journal):
        slot = journal.prepare() and postgresql("SELECT slot_name FROM pg_replication_slots")
        ((name,),) = slot.fetchall()
        shown = (
            "SELECT count(*) FROM pg_logical_slot_peek_binary_changes('{name}', '{end}', NULL, "
            "'proto_version', '1', 'publication_names', '{name}') WHERE substr(data, 1, 1) = 'U'"
        )
        postgresql("ALTER SYSTEM SET wal_writer_delay = '10s'")
        postgresql("SELECT pg_reload_conf()")
        try:
            with psycopg.connect(urls["postgresql"], autocommit=True) as application:
                application.execute("SET synchronous_commit = off")
                until = time.monotonic() + 60
                written, drained = 0, 0
                while written == drained:  # others may write to the disk at that very moment
                    assert time.monotonic() < until
                    application.execute("UPDATE games SET v = v + 1")
                    written += 1
                    ((end,),) = postgresql("SELECT pg_current_wal_lsn()").fetchall()
                    ((drained,),) = postgresql(shown.format(name=name, end=end)).fetchall()
        finally:
            postgresql("ALTER SYSTEM RESET wal_writer_delay")
            postgresql("SELECT pg_reload_conf()")


def test_a_feed_of_postgresql_begins_once_old_transactions_have_ended(
    urls: dict[str, str], postgresql: Run
) -> None:
    with _games(urls["postgresql"], postgresql) as (collection, journal):
        starts: list[Any] = []
        preparing = threading.Thread(target=lambda: starts.append(journal.prepare()))
        with psycopg.connect(urls["postgresql"]) as application:
            application.execute("UPDATE games SET v = 2")
            preparing.start()
            waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query ILIKE "
            slot = "'%replication_slot%'"
            end = time.monotonic() + 60
            while not postgresql(waits + slot).fetchall() and time.monotonic() < end:
                time.sleep(0.01)
            assert not starts  # or the write would be in no feed, and seen by no copy begun now
        preparing.join(60)
        assert starts
        assert _read(collection) == 2


def test_a_slot_that_kept_more_than_the_server_allows_is_lost_and_can_be_made_anew(
    urls: dict[str, str], postgresql: Run
) -> None:
    with _games(urls["postgresql"], postgresql) as (_, journal):
        start = journal.prepare()
        postgresql("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'")
        postgresql("SELECT pg_reload_conf()")
        end = time.monotonic() + 60
        try:
            lost = "SELECT 1 FROM pg_replication_slots WHERE wal_status = 'lost'"
            while not postgresql(lost).fetchall():
                assert time.monotonic() < end
                postgresql("UPDATE games SET v = v + 1")
                postgresql("SELECT pg_switch_wal()")
                postgresql("CHECKPOINT")
        finally:
            postgresql("ALTER SYSTEM RESET max_slot_wal_keep_size")
            postgresql("SELECT pg_reload_conf()")
        assert isinstance(journal, PostgresqlJournal)
        assert journal.kept() is None  # nothing of it is on the disk any more
        with pytest.raises(FeedLost):
            journal.open(start)
        journal.drop()  # as the mirror does then
        feed = journal.open(journal.prepare())
        postgresql("UPDATE games SET v = 7")
        while (given := feed.poll(0.5)) is None and time.monotonic() < end:
            pass
        feed.close()
        assert given is not None
        assert [touch.key for touch in given.touches] == ["a"]


def test_a_table_without_a_primary_key_can_be_written_while_it_is_followed(
    urls: dict[str, str], postgresql: Run
) -> None:
    postgresql("DROP TABLE IF EXISTS loose")
    postgresql("CREATE TABLE loose (id varchar(20) NOT NULL UNIQUE, v integer)")
    postgresql("INSERT INTO loose VALUES ('a', 1)")
    # What the application meets where a table is published before it tells its rows apart.
    postgresql("CREATE PUBLICATION hasty FOR TABLE loose")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState):
        postgresql("UPDATE loose SET v = 2")
    postgresql("DROP PUBLICATION hasty")
    store = sql.open_store(StoreSettings("store", urls["postgresql"]))
    at = At("store", tables("loose", key="id"), ["/Game/*"])
    journal = store.collection("Game", at).journal("run")  # type: ignore[attr-defined]
    feed = journal.open(journal.prepare())
    postgresql("UPDATE loose SET v = 2")
    end = time.monotonic() + 60
    while (given := feed.poll(0.5)) is None and time.monotonic() < end:
        pass
    feed.close()
    journal.drop()
    store.close()
    assert [touch.key for touch in given.touches] == ["a"]


@pytest.mark.parametrize(
    ("name", "number"),
    [("counted", "serial"), ('of "50%"', "int GENERATED BY DEFAULT AS IDENTITY")],
)
def test_numbers_given_after_a_flip_are_new(
    urls: dict[str, str], postgresql: Run, name: str, number: str
) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    postgresql(f"DROP TABLE IF EXISTS {quoted}")
    postgresql(f"CREATE TABLE {quoted} (id {number} PRIMARY KEY, v integer)")
    store = sql.open_store(StoreSettings("store", urls["postgresql"]))
    at = At("store", tables(name, key="id"), ["/Game/*"])
    collection = store.collection("Game", at)
    assert isinstance(collection, Numbering)
    collection.write([Block(n, {"": {"id": n, "v": n}}) for n in (1, 2, 3)])
    # What the application's own insert after the flip would meet, if nobody had moved them on.
    with pytest.raises(psycopg.errors.UniqueViolation):
        postgresql(f"INSERT INTO {quoted} (v) VALUES (7)")
    collection.number_on()
    ((given,),) = postgresql(f"INSERT INTO {quoted} (v) VALUES (7) RETURNING id").fetchall()
    assert given > 3
    store.close()


def test_the_fence_of_postgresql_makes_no_transaction_a_deadlock(
    urls: dict[str, str], postgresql: Run
) -> None:
    postgresql("DROP TABLE IF EXISTS rounds, matches")
    postgresql("CREATE TABLE matches (id varchar(20) PRIMARY KEY, v integer)")
    postgresql("CREATE TABLE rounds (id integer PRIMARY KEY, match varchar(20), v integer)")
    postgresql("INSERT INTO matches VALUES ('a', 1)")
    postgresql("INSERT INTO rounds VALUES (1, 'a', 1)")
    at = At("store", tables("matches", rounds=tables("rounds", parent="match")), ["/Game/*"])
    store = sql.open_store(StoreSettings("store", urls["postgresql"]))
    fence = store.collection("Game", at).fence("run")  # type: ignore[attr-defined]
    raising = threading.Thread(target=fence.raise_, args=["mark", 60])
    with psycopg.connect(urls["postgresql"]) as connection:
        connection.execute("UPDATE rounds SET v = 2")
        raising.start()
        _until_somebody_waits(postgresql)
        connection.execute("UPDATE matches SET v = 2")  # held by the fence, which waits for us
    joined(raising)
    assert fence.is_up()
    fence.lower()
    store.close()


def test_a_fence_of_postgresql_is_lowered_though_its_tables_are_dropped(
    urls: dict[str, str], postgresql: Run
) -> None:
    store = sql.open_store(StoreSettings("store", urls["postgresql"]))
    at = At("store", "ended", ["/Game/*"])
    collection = store.collection("Game", at)
    collection.create()
    collection.fence("run").raise_("mark", 60)  # type: ignore[attr-defined]
    collection.drop()
    store.collection("Game", at).journal("run").drop()  # type: ignore[attr-defined]
    store.collection("Game", at).fence("run").lower()  # type: ignore[attr-defined]
    left = "SELECT proname FROM pg_proc WHERE proname = 'run_fence'"
    assert postgresql(left).fetchall() == []
    store.close()


def test_an_outbox_of_postgresql_is_removed_though_its_tables_are_dropped(
    urls: dict[str, str], postgresql: Run
) -> None:
    store = sql.open_store(StoreSettings("store", urls["postgresql"]))
    for at in (At("store", "ended", ["/Game/*"]), _three_levels(postgresql)):
        collection: Any = store.collection("Game", at)
        if isinstance(collection, TablesCollection):
            followed: Any = OfTables
        else:
            followed = OfEntries
            collection.create()
        OutboxJournal(followed(collection), "run").prepare()
        collection.drop()
        OutboxJournal(followed(store.collection("Game", at)), "run").drop()
        left = "SELECT proname FROM pg_proc WHERE proname LIKE 'run_outbox%'"
        assert postgresql(left).fetchall() == []
        assert postgresql("SELECT to_regclass('run_outbox')").fetchall() == [(None,)]
    store.close()


def _until_somebody_waits(postgresql: Run) -> None:
    """Until one waits for a lock of another, on this server that nobody else uses."""
    end = time.monotonic() + 60
    while not postgresql("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall():
        assert time.monotonic() < end, "nobody waits"
        time.sleep(0.01)


def _three_levels(postgresql: Run) -> At:
    """Matches a and b, of a one round with one move."""
    postgresql("DROP TABLE IF EXISTS matches, rounds, moves")
    postgresql("CREATE TABLE matches (id varchar(20) PRIMARY KEY, v integer)")
    postgresql("CREATE TABLE rounds (id integer PRIMARY KEY, match varchar(20), v integer)")
    postgresql("CREATE TABLE moves (id integer PRIMARY KEY, round integer, v integer)")
    postgresql("INSERT INTO matches VALUES ('a', 1), ('b', 1)")
    postgresql("INSERT INTO rounds VALUES (1, 'a', 1)")
    postgresql("INSERT INTO moves VALUES (1, 1, 1)")
    rounds = tables("rounds", parent="match", moves=tables("moves", parent="round"))
    return At("store", tables("matches", rounds=rounds), ["/Game/*"])


@contextmanager
def _outbox(url: str, at: At) -> Iterator[Callable[[], list[Any]]]:
    """An outbox of some tables; what it gives is asked for, all that there is."""
    store = sql.open_store(StoreSettings("store", url))
    collection = store.collection("Game", at)
    assert isinstance(collection, TablesCollection)
    journal = OutboxJournal(OfTables(collection), "run")
    feed = journal.open(journal.prepare())

    def given() -> list[Any]:
        keys: list[Any] = []
        while (touches := feed.poll(0.1)) is not None:
            feed.acknowledge(touches.position)
            keys += sorted(str(touch.key) for touch in touches.touches)
        return keys

    yield given
    journal.drop()
    store.close()


@pytest.mark.parametrize("step", ["prepare", "drop"])
@pytest.mark.parametrize("kind", [OutboxJournal, PostgresqlJournal])
def test_no_application_falls_for_a_feed_of_postgresql_that_comes_or_goes(
    urls: dict[str, str], postgresql: Run, kind: type[Any], step: str
) -> None:
    at = _three_levels(postgresql)
    store = sql.open_store(StoreSettings("store", urls["postgresql"]))
    journal = kind(OfTables(store.collection("Game", at)), "run")
    journal.drop()
    if step == "drop":
        journal.prepare()
    with ThreadPoolExecutor(1) as pool, psycopg.connect(urls["postgresql"]) as connection:
        connection.execute("UPDATE moves SET v = 2")
        done = pool.submit(getattr(journal, step))
        _until_somebody_waits(postgresql)
        # Who waited first has looked for a deadlock by then, found none, and looks no more.
        time.sleep(1.2)
        connection.execute("UPDATE rounds SET v = 2")
        connection.execute("UPDATE matches SET v = 2")
        connection.commit()
        done.result(60)
    journal.drop()
    store.close()


def test_an_outbox_of_postgresql_gives_what_commits_late(
    urls: dict[str, str], postgresql: Run
) -> None:
    postgresql("DROP TABLE IF EXISTS games")
    postgresql("CREATE TABLE games (id varchar(20) PRIMARY KEY, v integer)")
    with _outbox(urls["postgresql"], _GAMES) as given:
        with psycopg.connect(urls["postgresql"]) as connection:
            connection.execute("INSERT INTO games VALUES ('late', 1)")
            postgresql("INSERT INTO games VALUES ('early', 1)")
            assert given() == ["early"]  # its number is the higher one
        assert given() == ["late"]


def test_an_outbox_of_postgresql_looks_for_the_root_when_it_is_read(
    urls: dict[str, str], postgresql: Run
) -> None:
    at = _three_levels(postgresql)
    with _outbox(urls["postgresql"], at) as given:
        with psycopg.connect(urls["postgresql"]) as connection:
            connection.execute("UPDATE moves SET v = 2")
            postgresql("UPDATE rounds SET match = 'b'")
            assert given() == ["a", "b"]
        assert given() == ["b"]


def test_mariadb_shows_no_touch_before_its_write_can_be_read(
    urls: dict[str, str], mariadb: Run
) -> None:
    with _games(urls["mariadb"], mariadb) as (collection, journal):
        start = journal.prepare()
        # A commit is in the log, and waits there for a replica that never comes.
        mariadb("SET GLOBAL rpl_semi_sync_master_wait_point = AFTER_SYNC")
        mariadb("SET GLOBAL rpl_semi_sync_master_timeout = 1500")
        mariadb("SET GLOBAL rpl_semi_sync_master_enabled = ON")

        def write() -> None:
            with _maria(urls["mariadb"]) as connection:
                connection.cursor().execute("UPDATE games SET v = 2")

        thread = threading.Thread(target=write)
        thread.start()
        try:
            assert _seen_at_the_touch(collection, journal, start) == 2
        finally:
            joined(thread)
            mariadb("SET GLOBAL rpl_semi_sync_master_enabled = OFF")


def test_the_fence_of_mariadb_holds_for_a_transaction_of_an_old_snapshot(
    urls: dict[str, str], mariadb: Run
) -> None:
    with _games(urls["mariadb"], mariadb) as (collection, _):
        fence: Any = collection.fence("run")
        with fence.journal.session() as session:
            fence._make(session)  # its tables would be too new for the snapshot otherwise
        with _maria(urls["mariadb"]) as connection:
            cursor = connection.cursor()
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
            fence.raise_("mark", 60)
            with pytest.raises(pymysql.MySQLError, match="stopped: Migrator moves it"):
                cursor.execute("INSERT INTO games VALUES ('b', 1)")
        fence.lower()


def test_a_session_of_mariadb_writes_on_after_its_right_was_taken(
    urls: dict[str, str], mariadb: Run
) -> None:
    """The rule taken out: who is told by a right alone that writes are stopped goes on."""
    mariadb("CREATE OR REPLACE USER plain@'127.0.0.1' IDENTIFIED BY 'migrator'")
    mariadb("GRANT ALL ON shop.* TO plain@'127.0.0.1'")
    with (
        _games(urls["mariadb"], mariadb) as (collection, _),
        _maria(urls["mariadb"], user="plain") as connection,
    ):
        application = connection.cursor()
        mariadb("REVOKE ALL ON shop.* FROM plain@'127.0.0.1'")
        mariadb("FLUSH PRIVILEGES")
        application.execute("UPDATE games SET v = 2")
        assert _read(collection) == 2
        fence: Any = collection.fence("run")
        fence.raise_("mark", 60)
        with pytest.raises(pymysql.MySQLError, match="stopped: Migrator moves it"):
            application.execute("UPDATE games SET v = 3")
        fence.lower()


@pytest.mark.parametrize(
    "statements",
    [
        ["SET SESSION binlog_format = STATEMENT", "UPDATE games SET v = 7"],
        [
            "SET SESSION binlog_format = STATEMENT",
            "/* by a view */ UPDATE seen SET v = 7",
        ],
        ["SET SESSION binlog_format = STATEMENT", "-- by a view\nUPDATE seen SET v = 7"],
        ["SET SESSION binlog_format = STATEMENT", "/* x */ /*!50000 UPDATE seen SET v = 7 */"],
        [
            "SET SESSION binlog_format = STATEMENT",
            "SET STATEMENT max_statement_time = 9 FOR UPDATE games SET v = 7",
        ],
        ["SET SESSION binlog_format = STATEMENT", "ANALYZE UPDATE games SET v = 7"],
        ["XA START 'x'", "UPDATE games SET v = 7", "XA END 'x'", "XA PREPARE 'x'", "XA COMMIT 'x'"],
        ["CREATE OR REPLACE TABLE games (id varchar(20) PRIMARY KEY, v integer)"],
        ["DROP DATABASE shop", "CREATE DATABASE shop"],
    ],
)
def test_what_mariadb_logs_without_rows_counts_as_a_whole(
    urls: dict[str, str], mariadb: Run, statements: list[str]
) -> None:
    with _games(urls["mariadb"], mariadb) as (_, journal):
        mariadb("CREATE OR REPLACE VIEW seen AS SELECT * FROM games")
        feed = journal.open(journal.prepare())
        mariadb("CREATE TRIGGER nothing BEFORE INSERT ON games FOR EACH ROW SET NEW.v = 1")
        mariadb("DROP TRIGGER nothing")
        assert feed.poll(0.3) is None  # it names the table and writes no rows
        with _maria(urls["mariadb"]) as connection:
            for statement in statements:
                connection.cursor().execute(statement)
        seen: list[bool] = []
        end = time.monotonic() + 60
        while not any(seen) and time.monotonic() < end:
            if (given := feed.poll(0.5)) is not None:
                seen.append(given.whole)
        feed.close()
        mariadb("USE shop")
        assert seen[-1:] == [True]


@pytest.mark.parametrize(
    ("made", "undone"),
    [
        ("SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0"),
        (
            "CHANGE MASTER TO master_host = '127.0.0.1', master_port = 1, master_user = 'nobody'",
            "RESET SLAVE ALL",
        ),
    ],
    ids=["read only", "replica"],
)
def test_a_replica_of_mariadb_is_refused(
    urls: dict[str, str], mariadb: Run, made: str, undone: str
) -> None:
    """What comes from its primary passes triggers: the fence of a swap would stop nobody."""
    with _games(urls["mariadb"], mariadb) as (_, journal):
        assert [each for each in journal.findings() if each[0] == "error"] == []
        mariadb(made)
        try:
            assert [code for _, code, *_ in journal.findings()] == ["replica"]
            with pytest.raises(Refused, match="replica"):
                journal.prepare()
        finally:
            mariadb(undone)


def test_a_replica_of_postgresql_is_refused(urls: dict[str, str], postgresql: Run) -> None:
    url = urls["postgresql"]
    with _games(url, postgresql), _standby(url, postgresql) as other:
        store = sql.open_store(StoreSettings("store", other))
        journal = store.collection("Game", _GAMES).journal("run")  # type: ignore[attr-defined]
        found = [code for severity, code, *_ in journal.findings() if severity == "error"]
        assert found == ["replica"]
        with pytest.raises(Refused, match="is a replica"):
            journal.prepare()
        store.close()


@contextmanager
def _standby(url: str, run: Run) -> Iterator[str]:
    """A replica of a server, with its settings."""
    ((data,),) = run("SHOW data_directory").fetchall()
    folder, plain, port = Path(data), urlsplit(url), free_port()
    program, *words = shlex.split((folder / "postmaster.opts").read_text())
    owner, copy = folder.stat(), folder.parent / "standby"
    user = {"user": owner.st_uid, "group": owner.st_gid} if os.geteuid() == 0 else {}
    words = [*words, "-c", f"port={port}", "-c", "unix_socket_directories="]
    options = shlex.join([str(copy) if word == data else word for word in words])

    def do(name: str, *words: str) -> None:
        subprocess.run(
            [Path(program).with_name(name), *words], check=True, timeout=120, cwd=folder.parent,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user,
        )  # fmt: skip

    do("pg_basebackup", "-d", plain._replace(path="/").geturl(), "-D", str(copy), "-R", "-cfast")
    do("pg_ctl", "-D", str(copy), "-w", "-o", options, "start")
    try:
        yield plain._replace(netloc=plain.netloc.replace(str(plain.port), str(port))).geturl()
    finally:
        do("pg_ctl", "-D", str(copy), "-m", "immediate", "stop")


def test_a_table_of_postgresql_that_a_subscription_writes_is_refused(
    urls: dict[str, str], postgresql: Run
) -> None:
    with _games(urls["postgresql"], postgresql) as (_, journal):
        postgresql(
            "CREATE SUBSCRIPTION other CONNECTION 'host=127.0.0.1' PUBLICATION other "
            "WITH (connect = false, slot_name = NONE)"
        )
        try:  # as it is noted once the other server was asked
            postgresql(
                "INSERT INTO pg_subscription_rel "
                "SELECT oid, 'games'::regclass, 'r', '0/0' FROM pg_subscription"
            )
            found = [code for severity, code, *_ in journal.findings() if severity == "error"]
            assert found == ["subscribed"]
            with pytest.raises(Refused, match="subscription other"):
                journal.prepare()
        finally:
            postgresql("DROP SUBSCRIPTION other")


def test_a_cascade_from_outside_that_comes_while_mariadb_is_followed_is_refused(
    urls: dict[str, str], mariadb: Run
) -> None:
    """Its log shows no row of what foreign keys do."""
    mariadb("DROP TABLE IF EXISTS games, vouchers")
    mariadb("CREATE TABLE vouchers (id int PRIMARY KEY) ENGINE=InnoDB")
    with _games(urls["mariadb"], mariadb) as (collection, journal):
        start = journal.prepare()
        mariadb("ALTER TABLE games ADD voucher int, ADD CONSTRAINT v FOREIGN KEY (voucher) "
                "REFERENCES vouchers (id)")  # fmt: skip
        collection.forget()
        before = collection.shape_now()
        journal.open(start).close()
        mariadb("ALTER TABLE games DROP FOREIGN KEY v")
        mariadb("ALTER TABLE games ADD CONSTRAINT v FOREIGN KEY (voucher) "
                "REFERENCES vouchers (id) ON DELETE CASCADE")  # fmt: skip
        assert collection.shape_now() != before
        collection.forget()
        with pytest.raises(Refused, match="referential action CASCADE from vouchers"):
            journal.open(start)
    mariadb("DROP TABLE games, vouchers")


def test_mariadb_is_followed_whatever_its_names(urls: dict[str, str], mariadb: Run) -> None:
    mariadb("DROP TABLE IF EXISTS `a %s`")
    mariadb("CREATE TABLE `a %s` (`k%s` varchar(20) PRIMARY KEY, `v%` integer)")
    store = sql.open_store(StoreSettings("store", urls["mariadb"]))
    collection = store.collection("Game", At("store", tables("a %s")))
    assert isinstance(collection, TablesCollection)
    journal = collection.journal("names")
    assert journal is not None
    try:
        reader = journal.open(json.loads(json.dumps(journal.prepare())))
        mariadb("INSERT INTO `a %s` VALUES ('x', 1)")
        while not (found := reader.poll(1.0)):
            pass
        assert [touch.key for touch in found.touches] == ["x"]
        reader.close()
    finally:
        journal.drop()
        store.close()


def test_a_limit_that_mariadb_has_for_all_sessions_leaves_no_row_out(
    urls: dict[str, str], mariadb: Run
) -> None:
    """Both sides would be called equal: whoever compares them reads by the same limit."""
    mariadb("SET GLOBAL sql_select_limit = 1")
    try:
        with _games(urls["mariadb"], mariadb) as (collection, _):
            mariadb("INSERT INTO games VALUES ('b', 2)")
            assert None not in collection.read(["a", "b"])
    finally:
        mariadb("SET GLOBAL sql_select_limit = DEFAULT")


def test_a_log_that_was_begun_anew_is_lost_though_its_name_and_places_are_there(
    urls: dict[str, str], mariadb: Run
) -> None:
    with _games(urls["mariadb"], mariadb) as (_, journal):
        start = journal.prepare()
        assert isinstance(start, dict)
        time.sleep(1.1)  # a file knows the second in which it was begun
        mariadb("RESET MASTER")
        while int(mariadb("SHOW MASTER STATUS")[0][1]) <= int(str(start["place"])):
            mariadb("UPDATE games SET v = v + 1")
        assert mariadb("SHOW MASTER STATUS")[0][0] == start["file"]
        with pytest.raises(FeedLost):
            journal.open(start)


def test_a_log_that_was_purged_is_lost(urls: dict[str, str], mariadb: Run) -> None:
    with _games(urls["mariadb"], mariadb) as (_, journal):
        start = journal.prepare()
        mariadb("FLUSH BINARY LOGS")
        latest = mariadb("SHOW MASTER STATUS")[0][0]
        while mariadb("SHOW BINARY LOGS")[0][0] != latest:  # kept while somebody reads it
            mariadb(f"PURGE BINARY LOGS TO '{latest}'")
            time.sleep(0.1)
        with pytest.raises(FeedLost, match="no longer has its log"):
            journal.open(start)


def test_a_feed_goes_on_into_the_next_file(urls: dict[str, str], mariadb: Run) -> None:
    with _games(urls["mariadb"], mariadb) as (_, journal):
        feed = journal.open(journal.prepare())
        mariadb("FLUSH BINARY LOGS")
        mariadb("UPDATE games SET v = 2")
        given = feed.poll(60)
        feed.close()
        assert given is not None
        position = given.position
        again = journal.open(position)
        mariadb("UPDATE games SET v = 3")
        later = again.poll(60)
        again.close()
        assert [t.key for t in given.touches] == ["a"]
        assert later is not None
        assert [t.key for t in later.touches] == ["a"]


@pytest.mark.parametrize(
    ("name", "is_", "wanted"),
    [
        ("binlog_format", "STATEMENT", "ROW"),
        ("binlog_row_image", "MINIMAL", "FULL"),
        ("binlog_row_metadata", "MINIMAL", "FULL"),
    ],
)
def test_a_setting_of_mariadb_that_is_missing_is_named(
    urls: dict[str, str], mariadb: Run, name: str, is_: str, wanted: str
) -> None:
    with _games(urls["mariadb"], mariadb) as (_, journal):
        mariadb(f"SET GLOBAL {name} = {is_}")
        try:
            told = [text for severity, _, text in journal.findings() if severity == "error"]
            with pytest.raises(Refused, match=f"{name} is {is_}, not {wanted}") as refused:
                journal.prepare()
        finally:
            mariadb(f"SET GLOBAL {name} = {wanted}")
        assert told == [f"{refused.value.what}; {refused.value.hint}"]
        assert f"SET GLOBAL {name} = {wanted}" in refused.value.hint


def test_a_right_that_is_missing_is_named(urls: dict[str, str], mariadb: Run) -> None:
    mariadb("CREATE OR REPLACE USER plain@'127.0.0.1' IDENTIFIED BY 'migrator'")
    mariadb("GRANT ALL ON shop.* TO plain@'127.0.0.1'")
    with _games(urls["mariadb"], mariadb):
        store = sql.open_store(
            StoreSettings("store", urls["mariadb"].replace("//migrator:", "//plain:"))
        )
        journal = store.collection("Game", _GAMES).journal("other")  # type: ignore[attr-defined]
        told = {code: text for _, code, text in journal.findings()}
        with pytest.raises(Refused) as refused:
            journal.prepare()
        store.close()
        assert "REPLICATION SLAVE" in refused.value.hint
        assert told["replication-right"] == f"{refused.value.what}; {refused.value.hint}"


def test_a_right_that_a_fence_lacks_is_named_before_and_at_the_fence(
    urls: dict[str, str], mariadb: Run
) -> None:
    mariadb("CREATE OR REPLACE USER plain@'127.0.0.1' IDENTIFIED BY 'migrator'")
    mariadb("GRANT ALL ON shop.* TO plain@'127.0.0.1'")
    mariadb("GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO plain@'127.0.0.1'")
    with _games(urls["mariadb"], mariadb) as (collection, _):
        left = mariadb("SHOW TABLES")
        store = sql.open_store(
            StoreSettings("store", urls["mariadb"].replace("//migrator:", "//plain:"))
        )
        place: Any = store.collection("Game", _GAMES)
        ((severity, code, text),) = place.journal("other").findings()
        assert (severity, code) == ("warning", "fence-right")
        setting = "SET GLOBAL log_bin_trust_function_creators = ON"
        assert setting in text
        with pytest.raises(Terminal) as refused:
            place.fence("other").raise_("mark", 60)
        assert setting in refused.value.hint
        assert mariadb("SHOW TABLES") == left
        mariadb("UPDATE games SET v = 2")  # the application goes on
        mariadb(setting)
        try:
            assert list(place.journal("other").findings()) == []
            place.fence("other").raise_("mark", 60)
            assert collection.fence("other").is_up()
            place.fence("other").lower()
        finally:
            mariadb(setting.replace("ON", "OFF"))
        store.close()


def test_postgresql_without_the_right_has_an_outbox_and_says_why(
    urls: dict[str, str], postgresql: Run
) -> None:
    postgresql("DROP ROLE IF EXISTS plain")
    postgresql("CREATE ROLE plain LOGIN PASSWORD 'migrator' IN ROLE migrator")
    with _games(urls["postgresql"], postgresql) as (_, native):
        assert isinstance(native, PostgresqlJournal)
        store = sql.open_store(
            StoreSettings("store", urls["postgresql"].replace("//migrator:", "//plain:"))
        )
        journal = store.collection("Game", _GAMES).journal("other")  # type: ignore[attr-defined]
        assert isinstance(journal, OutboxJournal)
        ((severity, code, text),) = journal.findings()
        store.close()
        assert (severity, code) == ("note", "trigger-outbox")
        assert "may not read the replication stream (give this role the right: ALTER ROLE" in text


def test_postgresql_without_a_free_slot_has_an_outbox_and_says_why(
    urls: dict[str, str], postgresql: Run
) -> None:
    with _games(urls["postgresql"], postgresql) as (collection, _):
        free = "current_setting('max_replication_slots')::int"
        taken = "(SELECT count(*) FROM pg_replication_slots)"
        postgresql(
            "SELECT pg_create_physical_replication_slot('taken_' || n) "
            f"FROM generate_series(1, {free} - {taken}) AS n"
        )
        try:
            journal = collection.journal("other")
            assert isinstance(journal, OutboxJournal)
            ((severity, code, text),) = journal.findings()
        finally:
            postgresql(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                "WHERE slot_name LIKE 'taken%'"
            )
        assert (severity, code) == ("note", "trigger-outbox")
        assert "no replication slot is free" in text


@pytest.mark.parametrize(
    ("low", "near", "whole"),
    [
        (7, 9, 7),
        (2**32 - 1, 2**32 + 5, 2**32 - 1),
        (3, 2**32 - 4, 2**32 + 3),
        (5, 3 * 2**32 + 6, 3 * 2**32 + 5),
        (2**32 - 2, 1, 2**32 - 2),
    ],
)
def test_a_transaction_number_is_widened_by_the_nearest_epoch(
    low: int, near: int, whole: int
) -> None:
    assert widened(low, near) == whole


def test_a_server_that_is_long_in_answering_stops_nobody_but_its_reader() -> None:
    """Else the lease would not be renewed meanwhile: here another thread is what answers."""
    went = b"SFATAL\0VFATAL\0C57P03\0Mwent away\0\0"

    def answer() -> None:
        client, _ = listens.accept()
        with client:
            client.recv(4096)
            client.sendall(b"E" + (len(went) + 4).to_bytes(4, "big") + went)

    with socket.create_server(("127.0.0.1", 0)) as listens:
        answering = threading.Thread(target=answer)
        answering.start()
        conninfo = (
            f"host=127.0.0.1 port={listens.getsockname()[1]} user=a dbname=a connect_timeout=60 "
            "sslmode=disable gssencmode=disable replication=database"
        )
        with pytest.raises(Transient, match="went away"):
            Stream(conninfo, "slot", "slot", 0, "shop:games")
        joined(answering)
