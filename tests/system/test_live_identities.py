"""Replica identities of PostgreSQL that others set: by them the log tells whose an old row was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import psycopg
import pytest

from migrator.errors import FeedLost
from migrator.model.move import At, tables
from migrator.ports import StoreSettings
from migrator.stores import sql
from migrator.stores.sql.tables import TablesCollection
from migrator.testing.feeds.harness import fresh, until
from tests.system import kit, servers
from tests.system.kit import Urls


@pytest.fixture
def name() -> str:
    return kit.fresh("told")


@pytest.fixture
def session(urls: Urls, name: str) -> Iterator[psycopg.Connection[Any]]:
    with closing(servers.connect_postgresql(urls("postgresql", ""))) as session:
        session.execute(f"CREATE TABLE {name} (id varchar(20) PRIMARY KEY, mail text NOT NULL)")
        session.execute(f"CREATE UNIQUE INDEX {name}_mail ON {name} (mail)")
        session.execute(f"CREATE TABLE {name}_rounds (id int PRIMARY KEY, game varchar(20))")
        session.execute(f"INSERT INTO {name} VALUES ('a', 'a@x'), ('b', 'b@x'), ('c', 'c@x')")
        session.execute(f"INSERT INTO {name}_rounds VALUES (1, 'a')")
        yield session
        session.execute(f"DROP TABLE {name}, {name}_rounds")


@pytest.fixture
def games(urls: Urls, session: psycopg.Connection[Any], name: str) -> Iterator[TablesCollection]:
    store = sql.open_store(StoreSettings("store", urls("postgresql", "")))
    at = At("store", tables(name, rounds=tables(f"{name}_rounds", parent="game")))
    collection = store.collection("Game", at)
    assert isinstance(collection, TablesCollection)
    yield collection
    store.close()


def test_an_identity_by_another_index_is_made_full_and_put_back(
    games: TablesCollection, session: psycopg.Connection[Any], name: str
) -> None:
    session.execute(f"ALTER TABLE {name} REPLICA IDENTITY USING INDEX {name}_mail")
    journal = games.journal(fresh("run"))
    feed = journal.open(journal.prepare())
    session.execute(f"DELETE FROM {name} WHERE id = 'b'")
    session.execute(f"UPDATE {name} SET id = 'd' WHERE id = 'c'")
    journal.mark(mark := fresh("mark"))
    assert set(until(feed, mark).keys) == {"b", "c", "d"}
    feed.close()
    journal.drop()
    found = "SELECT relreplident::text FROM pg_class WHERE oid = %s::regclass"
    assert session.execute(found, (name,)).fetchall() == [("i",)]


@pytest.mark.parametrize("identity", ["DEFAULT", "NOTHING"])
def test_an_identity_that_somebody_changed_has_the_feed_lost(
    games: TablesCollection, session: psycopg.Connection[Any], name: str, identity: str
) -> None:
    """As other tools do that follow the same tables: nothing would tell that a has lost a round."""
    journal = games.journal(fresh("run"))
    feed = journal.open(journal.prepare())
    session.execute(f"INSERT INTO {name}_rounds VALUES (2, 'c')")
    session.execute(f"ALTER TABLE {name}_rounds REPLICA IDENTITY {identity}")
    with suppress(psycopg.errors.ObjectNotInPrerequisiteState):
        session.execute(f"UPDATE {name}_rounds SET game = 'b' WHERE id = 1")
    session.execute(f"INSERT INTO {name}_rounds VALUES (3, 'c')")
    journal.mark(mark := fresh("mark"))
    with pytest.raises(FeedLost, match=f"replica identity of {name}_rounds"):
        until(feed, mark)
    feed.close()
    journal.drop()
