"""Redis behind TLS, where the socket is left to the driver: requests, scripts and feeds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator.errors import Terminal
from migrator.model.block import Block
from migrator.model.move import At, Layout
from migrator.ports import StoreSettings
from migrator.stores.redis import open_store
from migrator.stores.redis.collection import RedisCollection
from migrator.stores.redis.journal import RedisJournal
from migrator.stores.redis.tracking import TrackingJournal
from tests.contract.own_redis import Own
from tests.stores.certificates import Authority
from tests.stores.test_redis_feed import drained

# More than comes at once from a socket, or in a record of TLS.
LARGE = "x" * 300_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def own(folder: Path) -> Iterator[Own]:
    signed = str(folder / Authority(folder).sign("server"))
    files = "--tls-cert-file", signed, "--tls-key-file", signed, "--tls-ca-cert-file"
    server = Own(
        folder, *files, str(folder / "ca.pem"), "--tls-auth-clients", "no",
        "--repl-diskless-sync-delay", "1", tls=True,
    )  # fmt: skip
    yield server
    server.stop()


def at(own: Own, folder: Path, **options: object) -> RedisCollection:
    settings = {"tlsCAFile": str(folder / "ca.pem"), **options}
    store = open_store(StoreSettings("cache", f"rediss://127.0.0.1:{own.port}/0", settings))
    found = store.collection("Game", At("cache", "game", ["/Game/*/*"], Layout("hash")))
    assert isinstance(found, RedisCollection)
    return found


def ask(of: RedisCollection, *command: str) -> Any:
    wire = of._wire
    return wire.ask(wire.masters()[0], command)


def connected(of: RedisCollection) -> bytes:
    """How often somebody has."""
    (found,) = re.findall(rb"total_connections_received:(\d+)", ask(of, "INFO", "stats"))
    assert isinstance(found, bytes)
    return found


def test_blocks_are_changed_by_script_and_by_exchange(own: Own, folder: Path) -> None:
    games = at(own, folder)
    start = Block("a", {"n": 1, "large": LARGE, "rounds": []})
    games.write([start, Block("b", {"n": 2})])
    assert games.read(["a", "c", "b"]) == [start, None, Block("b", {"n": 2})]
    for number in (2, 3):
        ask(games, "SCRIPT", "FLUSH")
        amended = games._amender.amend("a", {"n": number}, {})  # type: ignore[union-attr]
        assert amended == Block("a", {**start.entries, "n": number})
    assert games.exchange("a", amended, Block("a", {"n": 3, "large": LARGE + "y"}))
    assert not games.exchange("a", amended, None)
    assert games.read(["a"]) == [Block("a", {"n": 3, "large": LARGE + "y"})]


def test_a_connection_is_kept_until_the_server_leaves(own: Own, folder: Path) -> None:
    games = at(own, folder)
    games.write([Block("a", {"n": 1})])
    before = connected(games)
    games.read(["a"])
    assert connected(games) == before
    ask(at(own, folder), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    assert games.read(["a"]) == [Block("a", {"n": 1})]


@pytest.mark.parametrize("feed", ["replication", "tracking"])
def test_writes_are_followed(own: Own, folder: Path, feed: str) -> None:
    games = at(own, folder, feed=feed)
    journal = games.journal("run")
    assert isinstance(journal, RedisJournal | TrackingJournal)
    following = journal.open(journal.prepare())
    try:
        games.write([Block("a", {"large": LARGE}), Block("b", {"n": 1})])
        touches, _, _ = drained(following, journal)  # type: ignore[arg-type]
        assert {touch.key for touch in touches} == {"a", "b"}
    finally:
        following.close()
        journal.drop()


def test_a_server_that_nobody_vouches_for_is_not_talked_to(own: Own, folder: Path) -> None:
    (other := folder / "other").mkdir()
    Authority(other)
    with pytest.raises(Terminal, match="certificate verify failed"):
        at(own, other).read(["a"])
