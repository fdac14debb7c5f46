"""MongoDB behind TLS, client certificates and passwords, on a server of these tests' own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.errors import PyMongoError

from migrator.errors import Terminal, Transient
from migrator.model.move import At
from migrator.ports import Store, StoreSettings
from migrator.retry import Retry
from migrator.stores.mongo import collection, open_store
from migrator.stores.mongo.journal import MARKS
from tests.cli.kit import SETTINGS, Project, new_shop, one_line
from tests.contract.own_redis import free_port
from tests.stores.certificates import Authority


class Server:
    """A server that wants TLS, a certificate of the client and a password."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = Authority(folder)
        self.files = {name: authority.sign(name) for name in ("server", "client")}
        self.port = free_port()

    def start(self, *more: str) -> subprocess.Popen[bytes]:
        server = str(self.folder / self.files["server"])
        tls = ("--tls-cert-file", server, "--tls-key-file", server, "--tls-require-client-cert")
        program = Path(sys.executable).with_name("secantusd-py")
        return subprocess.Popen(
            [program, "--host", "127.0.0.1", "--port", str(self.port), "--cache-size", "64M",
             "--storage-path", str(self.folder / "data"),
             *tls, "--tls-ca-file", str(self.folder / "ca.pem"), *more],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def plain(self, **more: object) -> pymongo.MongoClient[dict[str, object]]:
        return pymongo.MongoClient(
            "127.0.0.1", self.port, directConnection=True, serverSelectionTimeoutMS=20_000,
            tls=True, tlsCAFile=str(self.folder / "ca.pem"),
            tlsCertificateKeyFile=str(self.folder / self.files["client"]), **more,
        )  # fmt: skip

    def run(self, *more: str) -> None:
        """Start it, and wait until it answers; again where somebody has its port for a moment."""
        self.process = self.start(*more)
        until = time.monotonic() + 120
        with self.plain() as client:
            while True:
                try:
                    client.admin.command("hello")
                    return
                except PyMongoError:
                    assert time.monotonic() < until, "the server did not start"
                    if self.process.poll() is not None:
                        self.process = self.start(*more)

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(60)

    def restart(self) -> None:
        """Break all connections; from now on it wants passwords."""
        self.end()
        self.run("--auth")

    def change_password(self, name: str, password: str) -> None:
        with self.plain(username="root", password="root", authSource="admin") as client:
            client["accounts"].command("updateUser", name, pwd=password)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("secured"))
    server.run()
    try:
        with server.plain() as client:
            client["admin"].command("createUser", "root", pwd="root", roles=["root"])
            for name, role in (("app", "readWrite"), ("reader", "read")):
                roles = [{"role": role, "db": "shop"}]
                client["accounts"].command("createUser", name, pwd="first", roles=roles)
        server.restart()
        yield server
    finally:
        server.end()


OPTIONS = {
    "tls": True,
    "username": "app",
    "tlsCAFile": "ca.pem",
    "tlsCertificateKeyFile": "client.pem",
    "authSource": "accounts",
    "directConnection": True,
    "serverSelectionTimeoutMS": 20_000,
}
Open = Callable[..., Store]


@pytest.fixture
def open_(server: Server) -> Iterator[Open]:
    opened: list[Store] = []

    def open_(secret: Callable[[], str] = lambda: "first", **changes: object) -> Store:
        options = {k: x for k, x in (OPTIONS | changes).items() if x is not None}
        url = f"mongodb://127.0.0.1:{server.port}/shop"
        store = open_store(StoreSettings("docs", url, options, secret, root=str(server.folder)))
        opened.append(store)
        return store

    yield open_
    for store in opened:
        store.close()


def count(store: Store) -> int:
    return store.collection("Game", At("docs", "games")).count()


def test_tls_with_a_client_certificate_and_auth_source(open_: Open) -> None:
    store = open_()
    assert store.ping().version
    assert count(store) == 0


@pytest.mark.parametrize("missing", ["tls", "tlsCAFile", "tlsCertificateKeyFile"])
def test_without_its_part_of_tls_the_server_is_not_reached(open_: Open, missing: str) -> None:
    more = {"tlsCAFile": None, "tlsCertificateKeyFile": None} if missing == "tls" else {}
    with pytest.raises(Transient, match="can't reach MongoDB") as caught:
        count(open_(**{**more, missing: None, "serverSelectionTimeoutMS": 500}))
    assert "TLS" in caught.value.hint


def test_another_auth_source_is_another_user(open_: Open) -> None:
    with pytest.raises(Terminal, match="refused the login"):
        count(open_(authSource="admin"))


def test_a_wrong_password_is_terminal_and_stays_secret(open_: Open) -> None:
    with pytest.raises(Terminal, match="refused the login") as caught:
        count(open_(lambda: "hunter2"))
    assert "authSource" in caught.value.hint
    assert "hunter2" not in str(caught.value) + repr(caught.value)


def test_a_password_that_changes_is_fetched_for_the_next_connection(
    open_: Open, server: Server
) -> None:
    passwords = ["first"]
    # Closing it waits as long for a server that took it in no more.
    store = open_(lambda: passwords[-1], serverSelectionTimeoutMS=1_000)
    assert Retry(60)(count, store) == 0
    try:
        server.change_password("app", "second")
        server.restart()
        passwords.append("second")
        assert Retry(60)(count, store) == 0
        passwords.append("hunter2")
        server.restart()
        with pytest.raises(Terminal, match="refused the login"):
            Retry(60)(count, store)
    finally:  # for the others, and a second try
        server.change_password("app", "first")


def test_c46_a_single_shard_is_told(
    open_: Open, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = At("docs", "sharded")
    games = open_(lambda: "root", username="root", authSource="admin").collection("Game", at)
    games.create()
    assert list(games.findings()) == []
    with server.plain(username="root", password="root", authSource="admin") as client:
        client["kept"]["versions"].insert_one({"_id": "shardIdentity", "shardName": "rs1"})
    # Only a shard can say of itself that it is one: what it says lies elsewhere here.
    monkeypatch.setattr(collection, "IDENTITY", ("kept", "versions"))
    ((severity, code, text),) = games.findings()
    assert (severity, code) == ("accept", "mongodb-shard")
    assert "rs1" in text
    # A user who may not read that is not told, and nothing fails.
    assert list(open_().collection("Game", at).findings()) == []


# ---------------------------------------------------------------- by the command line


@pytest.fixture
def shop(tmp_path: Path, server: Server) -> Project:
    shop = new_shop(tmp_path)
    for name in ("ca.pem", "client.pem"):
        shutil.copy(server.folder / name, shop.root / name)
    shop.env = {"DOCS_PASSWORD": "first"}
    return shop


def settings(shop: Project, server: Server, user: str) -> None:
    """The target is the secured server, as a user whose password is in the environment."""
    lines = [
        f'url = "mongodb://127.0.0.1:{server.port}/shop"',
        'password = "${DOCS_PASSWORD}"',
        "[env.dev.stores.docs.options]",
        *(f"{name} = {json.dumps(value)}" for name, value in {**OPTIONS, "username": user}.items()),
    ]
    shop.write("migrator.toml", SETTINGS.replace('url = "embedded:///docs.db"', "\n".join(lines)))


def test_a_move_to_a_secured_server(shop: Project, server: Server) -> None:
    settings(shop, server, "app")
    shop.edit("migrations/0001_games.py", ('"games"', '"moved"'))
    assert "3 blocks equal" in shop.done("apply", "0001", "--yes").out
    with server.plain(username="app", password="first", authSource="accounts") as client:
        assert client["shop"]["moved"].count_documents({}) == 3
    shop.env = {"DOCS_PASSWORD": "hunter2"}
    told = one_line(shop("verify", "0001"), 1, "failed")
    assert "refused the login" in told
    assert "hunter2" not in told


def test_a_target_that_can_only_be_read(shop: Project, server: Server) -> None:
    settings(shop, server, "reader")
    shop.edit("migrations/0001_games.py", ('"games"', '"unwritten"'))
    told = one_line(shop("apply", "0001", "--yes"), 1, "failed")
    assert "docs:unwritten" in told
    assert "the user's roles" in told
    # With the right to write, the same command goes on.
    settings(shop, server, "app")
    assert "3 blocks equal" in shop.done("apply", "0001", "--yes").out


def test_who_may_not_follow_or_mark_is_told_and_changes_nothing(
    open_: Open, server: Server
) -> None:
    with server.plain(username="root", password="root", authSource="admin") as client:
        roles = [{"role": "readWrite", "db": "other"}]
        client["accounts"].command("createUser", "elsewhere", pwd="first", roles=roles)

    def refused(name: str, word: str, *values: str) -> str:
        place: Any = open_(username=name).collection("Game", At("docs", "games"))
        with pytest.raises(Terminal, match="refused the login or the right") as caught:
            getattr(place.journal("run"), word)(*values)
        assert "the user's roles" in caught.value.hint
        assert caught.value.where == "docs:games"
        return caught.value.what

    assert "listCollections" in refused("elsewhere", "prepare")
    assert "insert" in refused("reader", "mark", "here")
    with server.plain(username="app", password="first", authSource="accounts") as client:
        assert MARKS not in client["shop"].list_collection_names()
