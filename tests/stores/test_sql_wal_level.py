"""A PostgreSQL whose write-ahead log can't be decoded: what is told, and what is used instead."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from migrator.errors import Refused
from migrator.model.block import Block
from migrator.model.move import At, tables
from migrator.ports import StoreSettings
from migrator.stores import sql
from migrator.stores.sql.journal_postgresql import PostgresqlJournal
from migrator.stores.sql.live_postgresql import OfTables
from migrator.stores.sql.outbox_postgresql import OutboxJournal
from migrator.stores.sql.tables import TablesCollection
from tests.conftest import server_url
from tests.contract.own_redis import free_port

SCRIPT = Path(__file__).parents[2] / "scripts" / "services"


@pytest.fixture
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server as it is installed: with ``wal_level = replica``."""
    server_url("postgresql")  # where the shared one is absent, ours could not be started either
    port = free_port()
    environment = {
        **os.environ,
        "MIGRATOR_SERVICES_DIR": str(tmp_path_factory.mktemp("services")),
        "MIGRATOR_POSTGRESQL_PORT": str(port),
    }

    def do(*words: str) -> str:
        return subprocess.run(
            [sys.executable, str(SCRIPT), *words],
            env=environment, capture_output=True, text=True, timeout=240,
        ).stdout  # fmt: skip

    url = f"postgresql://migrator:migrator@127.0.0.1:{port}/postgres"
    do("up", "postgresql")
    with psycopg.connect(url) as connection:
        ((data,),) = connection.execute("SHOW data_directory").fetchall()
    do("down", "postgresql")
    options, owner = (Path(data) / "postmaster.opts").read_text().split(), Path(data).stat()
    root = os.geteuid() == 0
    words = [word.strip('"').replace("=logical", "=replica") for word in options]
    process = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=data,
        user=owner.st_uid if root else None, group=owner.st_gid if root else None,
    )  # fmt: skip
    try:
        end = time.monotonic() + 120
        while True:
            try:
                psycopg.connect(url).close()
                break
            except psycopg.OperationalError:
                assert process.poll() is None
                assert time.monotonic() < end
                time.sleep(0.05)
        yield url
    finally:
        process.kill()
        process.wait()
        for each in json.loads(do("status", "postgresql", "--format", "json")):
            shutil.rmtree(each["home"], ignore_errors=True)


def test_a_log_that_can_not_be_decoded_is_named_and_triggers_follow_instead(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE games (id text PRIMARY KEY, v int)")
        store = sql.open_store(StoreSettings("shop", url))
        collection = store.collection("Game", At("shop", tables("games"), ["/Game/*"]))
        assert isinstance(collection, TablesCollection)
        decoding = PostgresqlJournal(OfTables(collection), "run")
        assert ("error", "wal-level", "wal_level is replica, not logical") in decoding.findings()
        with pytest.raises(Refused, match="wal_level is replica, not logical") as refused:
            decoding.prepare()
        assert "wal_level = logical" in refused.value.hint
        assert "restart the server" in refused.value.hint
        left = "SELECT pubname FROM pg_publication UNION SELECT slot_name FROM pg_replication_slots"
        assert connection.execute(left).fetchall() == []

        journal = collection.journal("run")
        assert isinstance(journal, OutboxJournal)
        ((severity, code, text),) = journal.findings()
        assert (severity, code) == ("note", "trigger-outbox")
        assert "wal_level is replica" in text
        feed = journal.open(journal.prepare())
        collection.write([Block("a", {"": {"id": "a", "v": 1}})])
        end = time.monotonic() + 60
        while (given := feed.poll(0.1)) is None or not given.touches:
            assert time.monotonic() < end
        assert [touch.key for touch in given.touches] == ["a"]
        feed.close()
        journal.drop()
        store.close()
