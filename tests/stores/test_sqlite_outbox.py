"""What is special about the outbox and the fence of a SQLite file, beyond the contract of feeds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from migrator import tables
from migrator.errors import FeedLost
from migrator.journal import Feed, Journal, Touches
from migrator.model.move import At
from migrator.ports import StoreSettings
from migrator.stores import sql
from migrator.stores.sql.tables import TablesCollection

_GAMES = At("shop", tables("games", key="id", rounds=tables("rounds", parent="game")), ["/Game/*"])


@pytest.fixture
def user(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A program's own connection, to its own tables and trigger."""
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        connection.executescript(
            "CREATE TABLE games (id TEXT COLLATE NOCASE PRIMARY KEY, v INTEGER);"
            "CREATE TABLE rounds (id INTEGER PRIMARY KEY, game TEXT REFERENCES games, v INTEGER);"
            "CREATE TABLE log (what TEXT);"
            "CREATE TRIGGER mine AFTER INSERT ON games BEGIN INSERT INTO log VALUES (NEW.id); END;"
        )
        yield connection


@pytest.fixture
def games(tmp_path: Path, user: sqlite3.Connection) -> Iterator[TablesCollection]:
    store = sql.open_store(StoreSettings("shop", "sqlite:///shop.db", root=str(tmp_path)))
    collection = store.collection("Game", _GAMES)
    assert isinstance(collection, TablesCollection)
    yield collection
    store.close()


@contextmanager
def _following(games: TablesCollection) -> Iterator[tuple[Journal, Feed]]:
    journal = games.journal("run")
    assert journal is not None
    feed = journal.open(journal.prepare())
    yield journal, feed
    feed.close()


def _drained(feed: Feed) -> Touches:
    found = Touches()
    while (given := feed.poll(0)) is not None:
        found.touches = [*found.touches, *given.touches]
        found.whole = found.whole or given.whole
        found.position = given.position
    return found


def test_triggers_of_others_and_what_they_write_stay(
    games: TablesCollection, user: sqlite3.Connection
) -> None:
    before = user.execute("SELECT sql FROM sqlite_master").fetchall()
    with _following(games) as (journal, _):
        user.execute("INSERT INTO games VALUES ('a', 1)")
        assert user.execute("SELECT last_insert_rowid(), changes()").fetchone() == (1, 1)
        assert user.execute("SELECT what FROM log").fetchall() == [("a",)]
        journal.drop()
    assert user.execute("SELECT sql FROM sqlite_master").fetchall() == before


def test_a_trigger_that_somebody_dropped_loses_the_feed(
    games: TablesCollection, user: sqlite3.Connection
) -> None:
    with _following(games) as (journal, feed):
        assert feed.poll(0) is None
        user.execute("DROP TRIGGER run_outbox_1_after_update")
        with pytest.raises(FeedLost, match="trigger"):
            feed.poll(0.1)
        start = journal.prepare()
        user.execute("INSERT INTO games VALUES ('a', 1)")
        assert [touch.key for touch in _drained(journal.open(start)).touches] == ["a"]


def test_a_table_that_was_altered_counts_as_a_whole(
    games: TablesCollection, user: sqlite3.Connection
) -> None:
    with _following(games) as (_, feed):
        _drained(feed)
        user.execute("CREATE TABLE other (id INTEGER)")
        assert not _drained(feed).whole
        user.execute("ALTER TABLE rounds ADD COLUMN more INTEGER DEFAULT 7")
        assert _drained(feed).whole


def test_a_key_that_changed_in_case_alone_is_two_keys(
    games: TablesCollection, user: sqlite3.Connection
) -> None:
    user.execute("INSERT INTO games VALUES ('a', 1)")
    with _following(games) as (_, feed):
        _drained(feed)
        user.execute("UPDATE games SET id = 'A'")
        assert [(t.key, t.deleted) for t in _drained(feed).touches] == [("a", True), ("A", False)]


def test_a_child_leads_to_the_key_as_the_root_has_it(
    games: TablesCollection, user: sqlite3.Connection
) -> None:
    user.execute("INSERT INTO games VALUES ('a', 1)")
    with _following(games) as (_, feed):
        _drained(feed)
        user.execute("INSERT INTO rounds (game, v) VALUES ('A', 1)")  # a foreign key folds case
        assert [touch.key for touch in _drained(feed).touches] == ["a"]


def test_numbers_go_on_though_all_was_acknowledged(
    games: TablesCollection, user: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.outbox.journal._TIDY_EVERY", 0.0)
    with _following(games) as (journal, feed):
        for number in range(5):
            user.execute("INSERT INTO games VALUES (?, 1)", [f"game-{number}"])
        position = _drained(feed).position
        feed.acknowledge(position)
        assert user.execute("SELECT count(*) FROM run_outbox").fetchone() == (2,)
        user.execute("INSERT INTO games VALUES ('last', 1)")
        again = journal.open(position)
        assert [touch.key for touch in _drained(again).touches] == ["last"]


def test_a_file_restored_from_an_older_copy_is_lost(
    games: TablesCollection, user: sqlite3.Connection
) -> None:
    with _following(games) as (journal, feed):
        user.execute("INSERT INTO games VALUES ('a', 1)")
        position = _drained(feed).position
        user.execute("DELETE FROM run_outbox WHERE seq > 0")
        with pytest.raises(FeedLost, match="older"):
            journal.open(position)


@pytest.mark.parametrize("open_", [True, False], ids=["read on", "opened again"])
def test_a_file_restored_from_an_older_copy_is_lost_though_it_was_written_since(
    games: TablesCollection, user: sqlite3.Connection, tmp_path: Path, open_: bool
) -> None:
    """New rows of the outbox take the numbers of those that the copy lacks."""
    with _following(games) as (journal, feed), closing(sqlite3.connect(tmp_path / "copy")) as copy:
        user.execute("INSERT INTO games VALUES ('a', 1)")
        feed.acknowledge(_drained(feed).position)
        user.backup(copy)
        user.execute("INSERT INTO games VALUES ('b', 1)")
        position = _drained(feed).position
        copy.backup(user)
        for key in "cde":
            user.execute("INSERT INTO games VALUES (?, 1)", [key])
        with pytest.raises(FeedLost, match="older than what was read"):
            _drained(feed) if open_ else journal.open(position)


def test_only_migrator_passes_a_fence_and_its_pass_is_never_seen(
    games: TablesCollection, user: sqlite3.Connection
) -> None:
    fence = games.fence("run")
    assert fence is not None
    fence.raise_("mark", 1)
    with games.database.writing() as connection:
        connection.exec_driver_sql("INSERT INTO games VALUES ('ours', 1)")
        assert user.execute("SELECT passes FROM migrator_passes").fetchall() == [(0,)]
    with pytest.raises(sqlite3.IntegrityError, match="stopped: Migrator moves it"):
        user.execute("INSERT INTO games VALUES ('theirs', 1)")
    assert user.execute("SELECT id FROM games").fetchall() == [("ours",)]
