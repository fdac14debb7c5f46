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
from migrator.errors import DoesNotFit, Transient
from migrator.model.block import Address, Block
from migrator.model.move import Tables
from migrator.model.value import Record
from migrator.ports import StoreSettings
from migrator.stores.sql.store import SqlStore
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


@pytest.fixture(params=[False, True], ids=["in two", "by step"])
def stepwise(request: pytest.FixtureRequest) -> bool:
    """Whether each statement goes alone, as where rows lie deeper."""
    return bool(request.param)


def opened(base: Base, stepwise: bool = False, shape: Tables = GAME) -> Any:
    collection: Any = base.store().collection("Game", At("shop", shape))
    if stepwise:
        collection.writer.alone.__dict__["_one"] = None
    assert (collection.writer.alone._one is None) is stepwise
    return collection


def once_held(monkeypatch: Any, collection: Any, do: Callable[[], object]) -> None:
    """Do something whenever a write holds what it has read."""

    def hook(of: Any, name: str) -> None:
        hold = getattr(of, name)

        def late(*args: Any, **named: Any) -> Any:
            found = hold(*args, **named)
            do()
            return found

        monkeypatch.setattr(of, name, late)

    hook(collection.writer, "_hold")
    hook(collection.writer.alone, "_held")


def between(base: Base, monkeypatch: Any, stepwise: bool, first: Callable[[Any], object],
            second: Callable[[Any], object]) -> Any:  # fmt: skip
    """A write that begins once another has read what lies there; it ends, or waits for that."""
    one, other = opened(base, stepwise), opened(base, stepwise)
    thread = threading.Thread(target=second, args=(other,))

    def late() -> None:
        if thread.ident is None:
            thread.start()
            until = time.monotonic() + 30
            while thread.is_alive() and not base.rows(WAITING[base.dialect]):
                assert time.monotonic() < until
                thread.join(_LOOK_EVERY)

    once_held(monkeypatch, one, late)
    first(one)
    joined(thread)
    (found,) = one.read(["g"])
    return found


def test_of_two_whole_writes_one_stays(base: Base, monkeypatch: Any, stepwise: bool) -> None:
    opened(base, stepwise).write([game(0, "a", "b")])
    first, second = game(1, "a", "b"), game(2, "x", "y", "z")
    found = between(
        base, monkeypatch, stepwise, lambda c: c.write([first]), lambda c: c.write([second])
    )
    assert found == second


def test_of_two_that_amend_it_both_stay(base: Base, monkeypatch: Any, stepwise: bool) -> None:
    opened(base, stepwise).write([game(0, "a")])
    told: dict[int, Block] = {}  # whose answer is taken up first nobody knows

    def add(place: int, spell: str) -> Callable[[Any], object]:
        item: Record = {"pos": place, "spell": spell}

        def amend(collection: Any) -> None:
            told[place] = collection.amend("g", {"n": place}, {"rounds": item})

        return amend

    found = between(base, monkeypatch, stepwise, add(1, "b"), add(2, "c"))
    assert found == game(2, "a", "b", "c")
    assert told == {1: game(1, "a", "b"), 2: found}


@pytest.mark.parametrize("base", ["postgresql"], indirect=True)
def test_of_two_whole_writes_one_stays_where_sessions_keep_a_snapshot(
    base: Base, monkeypatch: Any, stepwise: bool
) -> None:
    base.run(f"ALTER DATABASE {base.name} SET default_transaction_isolation = 'repeatable read'")
    opened(base, stepwise).write([game(0, "a", "b")])
    # The root stays as it is: the server sees no clash.
    first, second = game(0, "a", "b", "c"), game(0, "x", "y")
    found = between(
        base, monkeypatch, stepwise, lambda c: c.write([first]), lambda c: c.write([second])
    )
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


def test_a_row_that_came_beside_the_held_root_is_written_over(
    base: Base, monkeypatch: Any, stepwise: bool
) -> None:
    base.run(
        "CREATE TABLE mark (game varchar(20) NOT NULL, pos integer NOT NULL, spell varchar(20), "
        "PRIMARY KEY (game, pos))"  # without a foreign key nothing makes it wait for the root
    )
    marks = tables("game", rounds=tables("mark", parent="game", order_by="pos"))
    collection = opened(base, stepwise, marks)
    collection.write([game(0, "a")])
    came: list[object] = []

    def beside() -> None:
        if not came:
            came.append(base.run("INSERT INTO mark VALUES ('g', 1, 'theirs')"))

    once_held(monkeypatch, collection, beside)
    collection.write([game(1, "a", "b")])
    assert collection.read(["g"]) == [game(1, "a", "b")]


def test_of_two_that_make_it_one_stays(base: Base, monkeypatch: Any, stepwise: bool) -> None:
    first, second = game(1, "a"), game(2, "x", "y", "z")
    found = between(
        base, monkeypatch, stepwise, lambda c: c.write([first]), lambda c: c.write([second])
    )
    assert found in (first, second)


def test_one_that_is_removed_and_written_is_there_whole_or_not(
    base: Base, monkeypatch: Any, stepwise: bool
) -> None:
    opened(base, stepwise).write([game(0, "a", "b")])
    second = game(2, "a", "b", "c")
    found = between(
        base, monkeypatch, stepwise, lambda c: c.delete([Address("g")]), lambda c: c.write([second])
    )
    assert found == second


def test_of_two_that_exchange_nothing_for_it_one_is_refused(
    base: Base, monkeypatch: Any, stepwise: bool
) -> None:
    first, second, done = game(1, "a"), game(2, "x", "y"), []
    found = between(
        base,
        monkeypatch,
        stepwise,
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
    games = opened(base, stepwise=True)
    _gone_again(base, monkeypatch, games.writer, 3)
    if write == "put":
        games.write([game(1, "a")])
    else:
        assert games.exchange("g", None, game(1, "a"))
    assert games.read(["g"]) == [game(1, "a")]


def test_an_insert_that_clashes_for_ever_with_nobody_ends(base: Base, monkeypatch: Any) -> None:
    games = opened(base, stepwise=True)
    _gone_again(base, monkeypatch, games.writer, 100)
    with pytest.raises(DoesNotFit, match="a unique key of game is taken"):
        games.exchange("g", None, game(1, "a"))
    assert games.read(["g"]) == [None]


def end_others(base: Base) -> None:
    """End all other sessions of the database."""
    if base.dialect == "postgresql":
        base.rows(
            "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )
        return
    for (number,) in base.rows(
        "SELECT id FROM information_schema.processlist WHERE db = database() "
        "AND id <> connection_id()"
    ):
        base.run(f"KILL {number}")


def test_where_the_session_ends_before_the_answer_the_outcome_is_unknown(
    base: Base, monkeypatch: Any, stepwise: bool
) -> None:
    opened(base, stepwise).write([game(0, "a")])
    collection = opened(base, stepwise)
    with monkeypatch.context() as until:
        once_held(until, collection, lambda: end_others(base))
        with pytest.raises(Transient) as lost:
            collection.write([game(1, "a", "b")])
    assert lost.value.unknown
    assert collection.read(["g"]) == [game(0, "a")]
    collection.write([game(2, "b")])
    assert collection.read(["g"]) == [game(2, "b")]


def test_what_is_refused_in_part_is_not_written_at_all(base: Base, stepwise: bool) -> None:
    base.run("ALTER TABLE round ADD CONSTRAINT c CHECK (spell <> 'odd')")
    collection = opened(base, stepwise)
    collection.write([game(0, "a", "b")])
    with pytest.raises(DoesNotFit):
        collection.write([game(1, "a", "odd")])
    assert collection.amend("g", {"n": 1}, {"rounds": {"pos": 2, "spell": "odd"}}) is None
    assert collection.read(["g"]) == [game(0, "a", "b")]
    # Nothing is held any longer.
    base.run("UPDATE game SET n = 5 WHERE id = 'g'")
    assert collection.read(["g"]) == [game(5, "a", "b")]


def test_what_does_not_fit_is_refused_while_it_is_looked_for(base: Base, stepwise: bool) -> None:
    collection = opened(base, stepwise)
    collection.write([game(0, "a")])
    with pytest.raises(DoesNotFit) as refused:
        collection.write([Block("g", {"": {"id": "g", "n": "x", "rounds": []}})])
    assert refused.value.path == "n"
    base.run("UPDATE game SET n = 5 WHERE id = 'g'")  # nothing is held
    collection.write([game(6, "b")])
    assert collection.read(["g"]) == [game(6, "b")]


def test_one_that_is_held_by_somebody_else_is_tried_again(base: Base) -> None:
    opened(base).write([game(0, "a")])
    hasty = SqlStore(StoreSettings("shop", base.url, {"lock_timeout": 1}))
    collection: Any = hasty.collection("Game", At("shop", GAME))
    with base.store().database.writing() as other:
        other.exec_driver_sql("SELECT 1 FROM game WHERE id = 'g' FOR UPDATE")
        with pytest.raises(Transient) as held:
            collection.write([game(1, "a", "b")])
        assert not held.value.unknown
    collection.write([game(2, "b")])
    assert collection.read(["g"]) == [game(2, "b")]
    hasty.close()


def test_an_order_that_only_the_server_knows_is_looked_at_before_it_is_kept(base: Base) -> None:
    by_text = tables("game", rounds=tables("round", order_by="spell"))
    collection = opened(base, shape=by_text)
    collection.write([game(0, "a", "b")])
    collection.write([game(1, "a", "b", "c")])
    assert collection.read(["g"]) == [game(1, "a", "b", "c")]
    with pytest.raises(DoesNotFit, match="order"):
        collection.write([game(2, "b", "a")])
    assert collection.read(["g"]) == [game(1, "a", "b", "c")]


def test_rows_that_fit_in_no_one_text_are_written_in_one_transaction(base: Base) -> None:
    base.run(f"CREATE TABLE page (game varchar(20) NOT NULL, pos integer NOT NULL, "
             f"spell {'text' if base.dialect == 'postgresql' else 'longtext'}, "
             "PRIMARY KEY (game, pos))")  # fmt: skip
    pages = tables("game", rounds=tables("page", parent="game", order_by="pos"))
    collection = opened(base, shape=pages)
    large = game(0, *(letter * 300_000 for letter in "abcdefgh"))
    collection.write([large])
    assert collection.read(["g"]) == [large]
    short = game(1, "a")
    collection.write([short])
    assert collection.read(["g"]) == [short]


def test_amending_what_is_not_there_or_no_list_writes_nothing(base: Base, stepwise: bool) -> None:
    collection = opened(base, stepwise)
    assert collection.amend("g", {"n": 1}, {}) is None
    collection.write([game(0, "a")])
    assert collection.amend("g", {"n": 1}, {"n": 1}) is None
    assert collection.amend("g", {"n": 1, "id": "h"}, {}) is None
    assert collection.amend("g", {"n": 1, "none": 1}, {}) is None
    assert collection.read(["g"]) == [game(0, "a")]
    assert collection.amend("g", {"n": 0}, {}) == game(0, "a")
    assert collection.amend("g", {"n": 7, "rounds": []}, {}) == game(7)
    assert collection.read(["g"]) == [game(7)]


@pytest.mark.parametrize("base", ["postgresql"], indirect=True)
def test_statements_that_the_server_has_forgotten_are_prepared_again(base: Base) -> None:
    collection = opened(base)
    collection.write([game(0, "a")])

    def forget() -> None:
        with collection.database.sending() as raw:
            raw.autocommit = True
            raw.execute("DEALLOCATE ALL")
            raw.autocommit = False

    forget()
    collection.write([game(1, "a", "b")])
    forget()
    assert collection.amend("g", {"n": 2}, {}) == game(2, "a", "b")
    base.run("ALTER TABLE round ALTER COLUMN spell TYPE text")
    collection.write([game(3, "a", "b", "c")])
    assert collection.read(["g"]) == [game(3, "a", "b", "c")]


def test_one_that_is_removed_is_not_found_and_holds_nobody_up(base: Base) -> None:
    collection = opened(base)
    collection.delete([Address("g")])
    base.run("INSERT INTO game VALUES ('g', 1)")
    collection.delete([Address("g")])
    assert collection.read(["g"]) == [None]
    base.run("INSERT INTO game VALUES ('g', 2)")
    assert collection.read(["g"]) == [game(2)]


def test_one_that_others_point_to_is_not_removed_and_the_error_names_it(
    base: Base, stepwise: bool
) -> None:
    base.run(
        "CREATE TABLE bet (game varchar(20) NOT NULL, FOREIGN KEY (game) REFERENCES game (id))"
    )
    collection = opened(base, stepwise)
    collection.write([game(1, "a")])
    base.run("INSERT INTO bet VALUES ('g')")
    for remove in (
        lambda: collection.exchange("g", game(1, "a"), None),
        lambda: collection.delete([Address("g")]),
    ):
        with pytest.raises(DoesNotFit, match="foreign key") as refused:
            remove()
        assert refused.value.key == "g"
    assert collection.read(["g"]) == [game(1, "a")]
