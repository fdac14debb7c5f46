"""Every feed and every fence keeps every promise of ``migrator.journal``."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from migrator.model.move import At, Layout
from migrator.ports import Collection, Json, Store, StoreSettings
from migrator.stores import sql, sqlite
from migrator.testing.feeds import FeedCase, FeedContract, LayoutContract
from migrator.testing.feeds.case import RULES
from tests.conftest import at_the_end, server_url
from tests.contract import feeds_mongo, feeds_redis, feeds_sql, servers


def _postgresql(_: Path) -> Store:
    return sql.open_store(StoreSettings("store", servers.database("postgresql")))


def _without_replication(_: Path) -> Store:
    """The store as a role that may make triggers and nothing of the server's."""
    url = make_url(servers.database("postgresql"))
    name = f"{servers.namespace()}plain"
    engine = sa.create_engine(_plain_postgresql(), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        found = connection.exec_driver_sql(f"SELECT 1 FROM pg_roles WHERE rolname = '{name}'")
        if found.first() is None:
            connection.exec_driver_sql(f"CREATE ROLE {name} LOGIN PASSWORD 'plain'")
            connection.exec_driver_sql(f"GRANT CREATE ON SCHEMA public TO {name}")
            connection.exec_driver_sql(f"GRANT {url.username} TO {name}")
            at_the_end.insert(0, lambda: _forget(name))  # last, when its database has gone
    engine.dispose()
    plain = url.set(username=name, password="plain").render_as_string(hide_password=False)
    return sql.open_store(StoreSettings("store", plain))


def _forget(role: str) -> None:
    url = make_url(server_url("postgresql")).set(drivername="postgresql+psycopg")
    engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"DROP ROLE {role}")
    engine.dispose()


def _plain_postgresql() -> str:
    url = make_url(servers.database("postgresql")).set(drivername="postgresql+psycopg")
    return url.render_as_string(hide_password=False)


def _tables_on_postgresql(_: Path, collection: Collection) -> feeds_sql.TablesApplication:
    return feeds_sql.TablesApplication(_plain_postgresql(), collection)


def _entries_on_postgresql(_: Path, collection: Collection) -> feeds_sql.EntriesApplication:
    return feeds_sql.EntriesApplication(_plain_postgresql(), collection)


def _other_system(position: Json) -> Json:
    assert isinstance(position, dict)
    return {**position, "system": "7000000000000000001"}


def _cut_slot(run: str) -> object:
    engine = sa.create_engine(_plain_postgresql(), poolclass=sa.NullPool)
    query = sa.text(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
        "WHERE slot_name = :n AND active"
    )
    with engine.connect() as connection:
        return connection.execute(query, {"n": run}).scalar()


def _mariadb(_: Path) -> Store:
    return sql.open_store(StoreSettings("store", servers.database("mariadb")))


def _plain_mariadb() -> str:
    url = make_url(servers.database("mariadb")).set(drivername="mysql+pymysql")
    return url.render_as_string(hide_password=False)


def _tables_on_mariadb(_: Path, collection: Collection) -> feeds_sql.TablesApplication:
    return feeds_sql.TablesApplication(_plain_mariadb(), collection)


def _entries_on_mariadb(_: Path, collection: Collection) -> feeds_sql.EntriesApplication:
    return feeds_sql.EntriesApplication(_plain_mariadb(), collection)


def _other_log(position: Json) -> Json:
    assert isinstance(position, dict)
    return {**position, "born": 1}


def _cut_dump(_: str) -> object:
    engine = sa.create_engine(_plain_mariadb(), poolclass=sa.NullPool)
    query = (
        "SELECT id FROM information_schema.processlist "
        "WHERE command LIKE 'Binlog Dump%%' AND db = database()"
    )
    with engine.connect() as connection:
        found = connection.exec_driver_sql(query).scalars().all()
        for number in found:
            connection.exec_driver_sql(f"KILL CONNECTION {int(number)}")
    return found


def _sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder}/feeds.db"


def _sqlite(folder: Path) -> Store:
    return sql.open_store(StoreSettings("store", "sqlite:///feeds.db", root=str(folder)))


def _embedded(folder: Path) -> Store:
    return sqlite.open_store(StoreSettings("store", "embedded:///feeds.db", root=str(folder)))


def _entries_at(name: str) -> At:
    return At("store", name, RULES, Layout("entries"))


def _tables_on_sqlite(folder: Path, collection: Collection) -> feeds_sql.TablesApplication:
    return feeds_sql.TablesApplication(_sqlite_url(folder), collection)


def _entries_on_sqlite(folder: Path, collection: Collection) -> feeds_sql.EntriesApplication:
    return feeds_sql.EntriesApplication(_sqlite_url(folder), collection)


def _entries_embedded(folder: Path, collection: Collection) -> feeds_sql.EmbeddedApplication:
    return feeds_sql.EmbeddedApplication(_sqlite_url(folder), collection)


def _other_outbox(position: Json) -> Json:
    assert isinstance(position, dict)
    return {**position, "outbox": "0" * 32}


CASES = [
    FeedCase(
        "sqlite", "tables", _sqlite, feeds_sql.tables_at, _tables_on_sqlite,
        elsewhere=_other_outbox,
    ),
    FeedCase(
        "embedded", "entries", _embedded, _entries_at, _entries_embedded, elsewhere=_other_outbox
    ),
    FeedCase(
        "postgresql", "tables", _postgresql, feeds_sql.tables_at, _tables_on_postgresql,
        elsewhere=_other_system, cut=_cut_slot,
    ),
    FeedCase(
        "postgresql outbox", "tables", _without_replication, feeds_sql.tables_at,
        _tables_on_postgresql, elsewhere=_other_outbox,
    ),
    FeedCase(
        "mariadb", "tables", _mariadb, feeds_sql.tables_at, _tables_on_mariadb,
        elsewhere=_other_log, cut=_cut_dump,
    ),
    feeds_mongo.DOCUMENT,
    feeds_redis.HASH,
]  # fmt: skip
# Their feeds are those of the layout above, of other tables.
LAYOUTS = [
    FeedCase(
        "sqlite", "entries", _sqlite, _entries_at, _entries_on_sqlite,
        elsewhere=_other_outbox,
    ),
    FeedCase(
        "postgresql", "entries", _postgresql, _entries_at, _entries_on_postgresql,
        elsewhere=_other_system, cut=_cut_slot,
    ),
    FeedCase(
        "mariadb", "entries", _mariadb, _entries_at, _entries_on_mariadb,
        elsewhere=_other_log, cut=_cut_dump,
    ),
    feeds_mongo.FLAT,
    *feeds_redis.OTHERS,
]  # fmt: skip


class TestFeeds(FeedContract):
    @pytest.fixture(scope="class", params=CASES, ids=str)
    @classmethod
    def case(cls, request: pytest.FixtureRequest) -> FeedCase:
        case: FeedCase = request.param
        return case


class TestLayouts(LayoutContract):
    @pytest.fixture(scope="class", params=LAYOUTS, ids=str)
    @classmethod
    def case(cls, request: pytest.FixtureRequest) -> FeedCase:
        case: FeedCase = request.param
        return case
