"""Two writes of one aggregate at the same moment, on PostgreSQL and MariaDB."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import event

from migrator import At, tables
from migrator.errors import DoesNotFit
from migrator.model.block import Address, Block
from tests.ending import joined
from tests.stores.sql_servers import Base

SCHEMA = """
CREATE TABLE game (id varchar(20) NOT NULL PRIMARY KEY, n integer NOT NULL);
CREATE TABLE round (game varchar(20) NOT NULL, pos integer NOT NULL, spell varchar(20),
  PRIMARY KEY (game, pos), FOREIGN KEY (game) REFERENCES game (id));
"""
GAME = tables("game", rounds=tables("round", order_by="pos"))
# InnoDB tells of transactions what it told before where it is asked again within 0.1 s.
_LOOK_EVERY = 0.15
WAITING = {
    "postgresql": "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
    "AND wait_event_type = 'Lock'",
    "mysql": "SELECT 1 FROM information_schema.innodb_trx t JOIN information_schema.processlist p "
    "ON p.id = t.trx_mysql_thread_id WHERE t.trx_state = 'LOCK WAIT' AND p.db = database()",
}


def game(number: int, *spells: str) -> Block:
    rounds = [{"pos": place, "spell": spell} for place, spell in enumerate(spells)]
    return Block("g", {"": {"id": "g", "n": number, "rounds": rounds}})


@pytest.fixture(params=["postgresql", "mysql"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Base]:
    made = Base(request.param, tmp_path)
    made.run(SCHEMA)
    yield made
    made.drop()


def between(base: Base, monkeypatch: Any, first: Callable[[Any], object],
            second: Callable[[Any], object]) -> Any:  # fmt: skip
    """A write that begins once another has read what lies there; it ends, or waits for that."""
    one = base.store().collection("Game", At("shop", GAME))
    other = base.store().collection("Game", At("shop", GAME))
    hold = one.writer._hold
    thread = threading.Thread(target=second, args=(other,))

    def late(*args: Any) -> Any:
        found = hold(*args)
        if thread.ident is None:
            thread.start()
            until = time.monotonic() + 30
            while thread.is_alive() and not base.rows(WAITING[base.dialect]):
                assert time.monotonic() < until
                thread.join(_LOOK_EVERY)
        return found

    monkeypatch.setattr(one.writer, "_hold", late)
    first(one)
    joined(thread)
    (found,) = one.read(["g"])
    return found


def test_of_two_whole_writes_one_stays(base: Base, monkeypatch: Any) -> None:
    base.store().collection("Game", At("shop", GAME)).write([game(0, "a", "b")])
    first, second = game(1, "a", "b"), game(2, "x", "y", "z")
    found = between(base, monkeypatch, lambda c: c.write([first]), lambda c: c.write([second]))
    assert found == second


@pytest.mark.parametrize("base", ["postgresql"], indirect=True)
def test_of_two_whole_writes_one_stays_where_sessions_keep_a_snapshot(
    base: Base, monkeypatch: Any
) -> None:
    base.run(f"ALTER DATABASE {base.name} SET default_transaction_isolation = 'repeatable read'")
    base.store().collection("Game", At("shop", GAME)).write([game(0, "a", "b")])
    # The root stays as it is: the server sees no clash.
    first, second = game(0, "a", "b", "c"), game(0, "x", "y")
    found = between(base, monkeypatch, lambda c: c.write([first]), lambda c: c.write([second]))
    assert found == second


@pytest.mark.parametrize("base", ["mysql"], indirect=True)
def test_a_snapshot_stays_one_after_a_journals_session_whatever_the_servers_default(
    base: Base,
) -> None:
    store = base.store()

    @event.listens_for(store.database.engine, "do_connect")
    def of_this_server(_d: Any, _r: Any, _args: Any, params: dict[str, Any]) -> None:
        params["init_command"] = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"

    with store.database.engine.connect() as connection:  # as a journal's session
        session = connection.execution_options(isolation_level="AUTOCOMMIT")
        own = session.exec_driver_sql("SELECT connection_id()").scalar()
    with store.database.reading() as connection:
        assert connection.exec_driver_sql("SELECT connection_id()").scalar() == own
        assert connection.exec_driver_sql("SELECT count(*) FROM game").scalar() == 0
        base.run("INSERT INTO game VALUES ('g', 1)")
        assert connection.exec_driver_sql("SELECT count(*) FROM game").scalar() == 0


@pytest.mark.parametrize("base", ["postgresql"], indirect=True)
@pytest.mark.parametrize("folds", [False, True], ids=["one statement", "a query for each table"])
def test_one_that_is_made_while_it_is_looked_for_is_held(
    base: Base, monkeypatch: Any, folds: bool
) -> None:
    collection = base.store().collection("Game", At("shop", GAME))
    if folds:
        monkeypatch.setitem(collection.__dict__, "single", None)
    under, made = collection.writer._under, []

    def after_another(*args: Any) -> Any:
        if not made:
            made.append(base.run("INSERT INTO game VALUES ('g', 1)"))
        return under(*args)

    monkeypatch.setattr(collection.writer, "_under", after_another)
    with collection.writer._transaction() as connection:
        (found,), held = collection.writer._hold(connection, "g")
        assert found.record == {"id": "g", "n": 1, "rounds": []}
        assert [len(rows) for rows in held.values()] == [1, 0]
        with pytest.raises(psycopg.errors.LockNotAvailable):
            base.rows("SELECT 1 FROM game WHERE id = 'g' FOR UPDATE NOWAIT")


def test_a_row_that_came_beside_the_held_root_is_written_over(base: Base, monkeypatch: Any) -> None:
    base.run(
        "CREATE TABLE mark (game varchar(20) NOT NULL, pos integer NOT NULL, spell varchar(20), "
        "PRIMARY KEY (game, pos))"  # without a foreign key nothing makes it wait for the root
    )
    marks = tables("game", rounds=tables("mark", parent="game", order_by="pos"))
    collection = base.store().collection("Game", At("shop", marks))
    collection.write([game(0, "a")])
    hold = collection.writer._hold

    def late(*args: Any) -> Any:
        found = hold(*args)
        base.run("INSERT INTO mark VALUES ('g', 1, 'theirs')")
        return found

    monkeypatch.setattr(collection.writer, "_hold", late)
    collection.write([game(1, "a", "b")])
    assert collection.read(["g"]) == [game(1, "a", "b")]


def test_of_two_that_make_it_one_stays(base: Base, monkeypatch: Any) -> None:
    first, second = game(1, "a"), game(2, "x", "y", "z")
    found = between(base, monkeypatch, lambda c: c.write([first]), lambda c: c.write([second]))
    assert found in (first, second)


def test_one_that_is_removed_and_written_is_there_whole_or_not(
    base: Base, monkeypatch: Any
) -> None:
    base.store().collection("Game", At("shop", GAME)).write([game(0, "a", "b")])
    second = game(2, "a", "b", "c")
    found = between(
        base, monkeypatch, lambda c: c.delete([Address("g")]), lambda c: c.write([second])
    )
    assert found == second


def test_of_two_that_exchange_nothing_for_it_one_is_refused(base: Base, monkeypatch: Any) -> None:
    first, second, done = game(1, "a"), game(2, "x", "y"), []
    found = between(
        base,
        monkeypatch,
        lambda c: done.append(c.exchange("g", None, first)),
        lambda c: done.append(c.exchange("g", None, second)),
    )
    assert sorted(done) == [False, True]
    assert found in (first, second)


def _gone_again(base: Base, monkeypatch: Any, writer: Any, times: int) -> None:
    """Somebody makes the aggregate once it was found absent, and removes it once that was met."""
    hold, is_taken, left = writer._hold, writer._is_taken, times

    def makes(*args: Any) -> Any:
        nonlocal left
        found = hold(*args)
        if left:
            left -= 1
            base.run("INSERT INTO game VALUES ('g', 9)")
        return found

    def removes(clash: Any) -> bool:
        base.run("DELETE FROM game WHERE id = 'g'")
        found: bool = is_taken(clash)
        return found

    monkeypatch.setattr(writer, "_hold", makes)
    monkeypatch.setattr(writer, "_is_taken", removes)


@pytest.mark.parametrize("write", ["put", "exchange"])
def test_an_insert_that_met_a_row_which_is_gone_by_then_is_made_again(
    base: Base, write: str, monkeypatch: Any
) -> None:
    games = base.store().collection("Game", At("shop", GAME))
    _gone_again(base, monkeypatch, games.writer, 3)
    if write == "put":
        games.write([game(1, "a")])
    else:
        assert games.exchange("g", None, game(1, "a"))
    assert games.read(["g"]) == [game(1, "a")]


def test_an_insert_that_clashes_for_ever_with_nobody_ends(base: Base, monkeypatch: Any) -> None:
    games = base.store().collection("Game", At("shop", GAME))
    _gone_again(base, monkeypatch, games.writer, 100)
    with pytest.raises(DoesNotFit, match="a unique key of game is taken"):
        games.exchange("g", None, game(1, "a"))
    assert games.read(["g"]) == [None]
