"""What goes wrong between us and a server: the right class of error, and no secret in it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from sqlalchemy import event

from migrator import At, tables
from migrator.errors import DoesNotFit, Refused, Terminal, Transient
from migrator.model.block import Block
from migrator.ports import StoreSettings
from migrator.stores.sql import engine, open_store
from migrator.stores.sql.store import SqlStore
from tests.stores.sql_servers import Base

DIALECTS = ["sqlite", "postgresql", "mysql"]
ITEMS = At("shop", tables("item"))


@pytest.fixture(params=DIALECTS)
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Base]:
    made = Base(request.param, tmp_path)
    made.run("CREATE TABLE item (id integer NOT NULL PRIMARY KEY, name varchar(20))")
    yield made
    made.drop()


@pytest.fixture(params=["postgresql", "mysql"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Base]:
    made = Base(request.param, tmp_path)
    made.run("CREATE TABLE item (id integer NOT NULL PRIMARY KEY, name varchar(20))")
    yield made
    made.drop()


def opened(url: str, **options: Any) -> SqlStore:
    store = open_store(StoreSettings("shop", url, options))
    assert isinstance(store, SqlStore)
    return store


def item(id: int, name: str = "x") -> Block:
    return Block(id, {"": {"id": id, "name": name}})


def changed(url: str, **parts: Any) -> str:
    split = urlsplit(url)
    user, password = parts.get("user", split.username), parts.get("password", split.password)
    host = f"{parts.get('host', split.hostname)}:{parts.get('port', split.port)}"
    return split._replace(
        netloc=f"{user}:{password}@{host}", path=parts.get("path", split.path)
    ).geturl()


def test_a_wrong_password_is_terminal_and_stays_secret(server: Base) -> None:
    with pytest.raises(Terminal, match="check user and password") as caught:
        opened(changed(server.url, password="s3cret-word", user="nobody_here")).ping()
    assert "s3cret-word" not in str(caught.value)


def test_the_password_is_asked_for_each_connection(server: Base) -> None:
    password = urlsplit(server.url).password or ""
    asked: list[int] = []

    def secret() -> str:
        asked.append(1)
        return password

    store = SqlStore(StoreSettings("shop", changed(server.url, password="old"), secret=secret))
    with store.database.reading(), store.database.reading():
        pass
    assert len(asked) >= 2
    store.close()


def test_nobody_answers(server: Base) -> None:
    with pytest.raises(Transient, match="check host") as caught:
        opened(changed(server.url, port=1), connect_timeout=2).ping()
    assert not caught.value.unknown


def test_no_such_database(server: Base) -> None:
    with pytest.raises(Terminal, match="create the database"):
        opened(changed(server.url, path="/nix_da")).ping()


def test_a_missing_table_is_named(base: Base) -> None:
    with pytest.raises(Terminal, match="no table 'nix'"):
        base.store().collection("X", At("shop", tables("nix"))).page(None, None, 1)


def test_a_missing_file_is_not_made(tmp_path: Path) -> None:
    store = opened(f"sqlite:///{tmp_path}/nix.db")
    assert store.ping().remarks == ("the file does not exist yet",)
    assert not store.collection("Item", ITEMS).exists()
    with pytest.raises(Terminal, match="there is no file"):
        store.collection("Item", ITEMS).count()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "text.db").write_text("no database, this " * 100)
    with pytest.raises(Terminal, match="not a database"):
        opened(f"sqlite:///{tmp_path}/text.db").ping()


@pytest.mark.parametrize(
    ("url", "options", "words"),
    [
        ("sqlite:///x.db", {"sslmode": "require"}, "option 'sslmode' is not known"),
        ("postgresql://h/d", {"poolsize": 3}, "known are: .*pool_size"),
        ("postgresql://h/d", {"pool_size": 0}, "pool_size must be"),
        ("postgresql://h/d", {"sslmode": "maybe"}, "sslmode must be one of"),
        ("mysql://h/d", {"sslrootcert": "nix.pem"}, "no file nix.pem"),
        ("mysql://h/d?charset=latin1", {}, "option 'charset' is not known"),
        ("postgresql://h", {}, "names no database"),
        ("sqlite://", {}, "names no file"),
        ("oracle://h/d", {}, "no relational store"),
    ],
)
def test_options_are_checked(url: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(Refused, match=words):
        opened(url, **options)


def test_tls_that_the_server_has_not_is_terminal(tmp_path: Path) -> None:
    base = Base("postgresql", tmp_path)
    try:
        with pytest.raises(Terminal, match="SSL"):
            opened(base.url, sslmode="require").ping()
    finally:
        base.drop()


def test_a_lock_held_by_another_is_transient(base: Base) -> None:
    store = opened(base.url, lock_timeout=1)
    items = store.collection("Item", ITEMS)
    items.write([item(1)])
    other = base._connect(base.url)
    try:
        cursor = other.cursor()
        cursor.execute("BEGIN IMMEDIATE" if base.dialect == "sqlite" else "BEGIN")
        cursor.execute("UPDATE item SET name = 'held' WHERE id = 1")
        with pytest.raises(Transient, match="lock") as caught:
            items.write([item(1, "mine")])
        assert not caught.value.unknown
        cursor.execute("ROLLBACK")
    finally:
        other.close()
    items.write([item(1, "mine")])
    store.close()


def test_a_read_only_target_is_terminal(base: Base) -> None:
    store = opened(base.url)
    items = store.collection("Item", ITEMS)
    assert items.count() == 0
    event.listen(store.database.engine, "connect", lambda raw, _: _read_only(base, raw))
    store.database.engine.dispose()
    with pytest.raises(Terminal, match=r"(?i)read.?only"):
        items.write([item(1)])
    store.close()


def _read_only(base: Base, raw: Any) -> None:
    if base.dialect == "sqlite":
        raw.execute("PRAGMA query_only = ON")
    elif base.dialect == "postgresql":
        raw.execute("SET default_transaction_read_only = on")
        raw.commit()
    else:
        raw.cursor().execute("SET SESSION TRANSACTION READ ONLY")


def test_a_full_disk_is_terminal(tmp_path: Path) -> None:
    base = Base("sqlite", tmp_path)
    base.run("CREATE TABLE item (id integer NOT NULL PRIMARY KEY, name text)")
    store = opened(base.url)
    event.listen(
        store.database.engine, "connect", lambda raw, _: raw.execute("PRAGMA max_page_count = 3")
    )
    with pytest.raises(Terminal, match="free space"):
        store.collection("Item", ITEMS).write([item(i, "x" * 9000) for i in range(9)])
    assert base.rows("SELECT * FROM item") == []
    store.close()


def test_a_session_ended_during_a_write_leaves_doubt(server: Base) -> None:
    store = opened(server.url)
    items = store.collection("Item", ITEMS)
    items.write([item(1)])
    other = server._connect(server.url)
    cursor = other.cursor()
    cursor.execute("BEGIN")
    cursor.execute("UPDATE item SET name = 'held' WHERE id = 1")
    caught: list[BaseException] = []

    def write() -> None:
        try:
            items.write([item(1, "mine")])
        except BaseException as error:  # noqa: BLE001
            caught.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    _end_sessions(server)
    thread.join(60)
    other.close()
    (error,) = caught
    assert isinstance(error, Transient)
    assert error.unknown
    items.write([item(1, "mine")])  # the pool notices, and connects anew
    store.close()


def test_a_server_that_does_not_know_what_became_of_a_statement_leaves_doubt(
    tmp_path: Path,
) -> None:
    base = Base("postgresql", tmp_path)
    base.run("CREATE TABLE item (id integer NOT NULL PRIMARY KEY, name varchar(20))")
    base.run(
        "CREATE FUNCTION unknown() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'not known' USING ERRCODE = 'statement_completion_unknown'; END $$"
    )
    base.run("CREATE TRIGGER t BEFORE INSERT ON item FOR EACH ROW EXECUTE FUNCTION unknown()")
    try:
        with pytest.raises(Transient, match="not known") as caught:
            base.store().collection("Item", ITEMS).write([item(1)])
        assert caught.value.unknown
    finally:
        base.drop()


def _end_sessions(server: Base) -> None:
    for _ in range(1200):
        if server.dialect == "postgresql":
            query = (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                f"WHERE datname = '{server.name}' AND wait_event_type = 'Lock'"
            )
            if server.rows(query):
                return
        else:
            rows = server.rows(
                "SELECT id FROM information_schema.processlist "
                f"WHERE db = '{server.name}' AND info LIKE 'SELECT%item%FOR UPDATE'"
            )
            if rows:
                server.run(f"KILL {rows[0][0]}")
                return
        threading.Event().wait(0.05)
    raise AssertionError("nobody waits for the lock")


def test_a_session_that_was_ended_while_it_lay_idle_is_replaced(server: Base) -> None:
    store = opened(server.url)
    items = store.collection("Item", ITEMS)
    items.write([item(1)])
    postgresql = server.dialect == "postgresql"
    with store.database.reading() as connection:
        which = "pg_backend_pid()" if postgresql else "connection_id()"
        session = connection.exec_driver_sql(f"SELECT {which}").scalar_one()
    server.run(f"SELECT pg_terminate_backend({session})" if postgresql else f"KILL {session}")
    there = ("pg_stat_activity", "pid") if postgresql else ("information_schema.processlist", "id")
    for _ in range(600):
        if not server.rows(f"SELECT 1 FROM {there[0]} WHERE {there[1]} = {session}"):
            break
        threading.Event().wait(0.05)
    items.write([item(2)])  # it was used a moment ago, and yet nobody meets its end
    assert [block and block.id for block in items.read([1, 2])] == [1, 2]
    store.close()


def test_a_request_that_takes_too_long_is_transient(server: Base) -> None:
    store = opened(server.url, statement_timeout=1)
    slow = "pg_sleep(5)" if server.dialect == "postgresql" else "sleep(5)"
    late = pytest.raises(Transient, match="statement_timeout")
    with late, store.database.reading() as connection:
        connection.exec_driver_sql(f"SELECT {slow}, count(*) FROM item").all()
    store.close()


def test_a_foreign_key_that_points_nowhere_does_not_fit(server: Base) -> None:
    server.run(
        "CREATE TABLE part (id integer NOT NULL PRIMARY KEY, item integer,"
        " FOREIGN KEY (item) REFERENCES item (id))"
    )
    parts = opened(server.url).collection("Part", At("shop", tables("part")))
    with pytest.raises(DoesNotFit, match="foreign key") as caught:
        parts.write([Block(i, {"": {"id": i, "item": None if i < 3 else 99}}) for i in range(5)])
    assert caught.value.key == 3


def test_a_gateway_that_stands_still_in_a_write_holds_nobody_up_for_long(
    server: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one whose host is gone: the server itself ends its transaction (R6)."""
    monkeypatch.setattr(engine, "IDLE", 1)
    server.run("INSERT INTO item (id, name) VALUES (1, 'as it was')")
    store = open_store(StoreSettings("shop", server.url, application=True))
    assert isinstance(store, SqlStore)
    wait = (
        "lock_timeout = '20s'"
        if server.dialect == "postgresql"
        else "innodb_lock_wait_timeout = 20"
    )

    def write() -> None:
        with store.database.writing() as connection:
            connection.exec_driver_sql("UPDATE item SET name = 'mine'")
            server.run(f"SET {wait}; UPDATE item SET name = 'of another'")
            connection.exec_driver_sql("SELECT 1")

    with pytest.raises(Transient) as lost:
        write()
    assert lost.value.unknown
    store.close()
    assert server.rows("SELECT name FROM item") == [("of another",)]


def test_a_server_soon_notices_that_a_host_of_ours_is_gone(server: Base) -> None:
    """What it had begun is locked until then."""
    if server.dialect != "postgresql":
        pytest.skip("no session of MariaDB says how often its server looks")
    store = opened(server.url)
    asked = "SELECT setting FROM pg_settings WHERE name ~ '^tcp_keepalives_' ORDER BY name"
    with store.database.reading() as connection:
        found = [int(each) for each in connection.exec_driver_sql(asked).scalars()]
    count, idle, interval = found
    assert 0 < idle + count * interval <= 30
    store.close()
