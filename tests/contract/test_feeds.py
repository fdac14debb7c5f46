"""Every feed and every fence keeps every promise of ``migrator.journal``."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from migrator.ports import Collection, Json, Store, StoreSettings
from migrator.stores import sql
from migrator.testing.feeds import FeedCase, FeedContract
from tests.contract import feeds_mongo, feeds_sql, servers


def _postgresql(_: Path) -> Store:
    return sql.open_store(StoreSettings("store", servers.database("postgresql")))


def _plain_postgresql() -> str:
    url = make_url(servers.database("postgresql")).set(drivername="postgresql+psycopg")
    return url.render_as_string(hide_password=False)


def _tables_on_postgresql(_: Path, collection: Collection) -> feeds_sql.TablesApplication:
    return feeds_sql.TablesApplication(_plain_postgresql(), collection)


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


CASES = [
    FeedCase(
        "postgresql", "tables", _postgresql, feeds_sql.tables_at, _tables_on_postgresql,
        elsewhere=_other_system, cut=_cut_slot,
    ),
    *feeds_mongo.CASES,
]  # fmt: skip


class TestFeeds(FeedContract):
    @pytest.fixture(scope="class", params=CASES, ids=str)
    @classmethod
    def case(cls, request: pytest.FixtureRequest) -> FeedCase:
        case: FeedCase = request.param
        return case
