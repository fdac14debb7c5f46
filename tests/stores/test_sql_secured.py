"""PostgreSQL and MariaDB behind TLS and client certificates, on servers of these tests' own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest

from migrator import tables
from migrator.errors import MigratorError, Refused, Terminal
from migrator.model.move import At
from migrator.ports import StoreSettings
from migrator.stores.sql import open_store
from migrator.stores.sql.errors import Sort, classify
from tests.conftest import server_url
from tests.contract.own_redis import free_port
from tests.stores.certificates import Authority

SCRIPT = Path(__file__).parents[2] / "scripts" / "services"
Answers = Callable[[], object]


def until(answers: Answers, *errors: type[Exception]) -> None:
    """Wait for a server."""
    end = time.monotonic() + 120
    while True:
        try:
            answers()
            return
        except errors:
            assert time.monotonic() < end, "the server does not answer"
            time.sleep(0.1)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what an authority signed, and what another one did."""
    folder = tmp_path_factory.mktemp("certificates")
    (folder / "other").mkdir()
    for name in ("server", "secured"):
        Authority(folder / "other").sign(name)
    authority = Authority(folder)
    for name in ("server", "secured"):
        authority.sign(name)
    return folder


Do = Callable[..., subprocess.CompletedProcess[str]]


def by_certificate(certificates: Path) -> dict[str, Any]:
    """What libpq is told to show the client's certificate."""
    client = certificates / "secured.pem"
    client.chmod(0o600)  # or it will not read it
    return {"sslmode": "require", "sslcert": str(client), "sslkey": str(client)}


@pytest.fixture(scope="module")
def postgresql(server: tuple[str, Do]) -> str:
    return server[0]


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, certificates: Path
) -> Iterator[tuple[str, Do]]:
    """A PostgreSQL where the role secured needs TLS and a certificate, and what commands it."""
    server_url("postgresql")  # where the shared one is absent, ours could not be started either
    port = free_port()
    environment = {
        **os.environ,
        "MIGRATOR_SERVICES_DIR": str(tmp_path_factory.mktemp("services")),
        "MIGRATOR_POSTGRESQL_PORT": str(port),
    }

    def do(command: str, *more: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, str(SCRIPT), command, "postgresql", *more]
        return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=240)

    started = do("up")
    assert started.returncode == 0, started.stdout + started.stderr
    try:
        url = f"postgresql://migrator:migrator@127.0.0.1:{port}/postgres"
        with psycopg.connect(url, autocommit=True) as db:
            found = db.execute("SHOW data_directory").fetchone()
            assert found is not None
            data = Path(found[0])
            _give_certificates(certificates, data)
            rules = data / "pg_hba.conf"
            rules.write_text(
                "hostssl all secured all cert\nhost all secured all reject\n" + rules.read_text()
            )
            for name, value in {
                "ssl_ca_file": "ca.pem", "ssl_cert_file": "server.pem",
                "ssl_key_file": "server.pem", "ssl": "on",
            }.items():  # fmt: skip
                db.execute(f"ALTER SYSTEM SET {name} = '{value}'")
            db.execute("CREATE ROLE secured LOGIN")
            db.execute("SELECT pg_reload_conf()")
        url = f"postgresql://secured@127.0.0.1:{port}/postgres"
        tls = by_certificate(certificates)
        until(lambda: psycopg.connect(url, **tls).close(), psycopg.OperationalError)
        yield url, do
    finally:
        do("kill")
        (seen,) = json.loads(do("status", "--format", "json").stdout)
        shutil.rmtree(seen["home"], ignore_errors=True)


def _give_certificates(certificates: Path, data: Path) -> None:
    """Copy the server's own beside its data, for the account that it runs as."""
    owner = data.stat()
    for name in ("ca.pem", "server.pem"):
        copy = shutil.copy(certificates / name, data / name)
        os.chmod(copy, 0o600)
        if os.geteuid() == 0:
            os.chown(copy, owner.st_uid, owner.st_gid)


@pytest.fixture(scope="module")
def mariadb(tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[str]:
    """A server on which the user secured needs TLS and a certificate."""
    server_url("mariadb")
    home = tmp_path_factory.mktemp("mariadb")
    port = free_port()
    account = ["--user=root"] if os.geteuid() == 0 else []
    # As it starts it clears the folder for temporary files, of which other servers die.
    env = {**os.environ, "TMPDIR": str(home)}
    (home / "users.sql").write_text(
        "CREATE USER IF NOT EXISTS 'secured'@'127.0.0.1' REQUIRE X509;\n"
        "GRANT ALL PRIVILEGES ON *.* TO 'secured'@'127.0.0.1';\n"
        "CREATE DATABASE IF NOT EXISTS shop;\n"
    )
    subprocess.run(
        ["mariadb-install-db", "--no-defaults", f"--datadir={home}/data", "--skip-test-db",
         "--auth-root-authentication-method=normal", *account],
        env=env, check=True, capture_output=True,
    )  # fmt: skip
    program = shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin") or "mariadbd"
    process = subprocess.Popen(
        [program, "--no-defaults", f"--datadir={home}/data", "--bind-address=127.0.0.1",
         f"--port={port}", f"--socket={home}/socket", f"--pid-file={home}/pid",
         f"--init-file={home}/users.sql", f"--ssl-ca={certificates}/ca.pem",
         f"--ssl-cert={certificates}/server.pem", f"--ssl-key={certificates}/server.pem",
         "--innodb-buffer-pool-size=16M", *account],
        env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:

        def greets() -> None:
            assert process.poll() is None, "it did not start"
            # It answers, and refuses whoever has no certificate.
            with pytest.raises(pymysql.err.OperationalError, match="denied"):
                pymysql.connect(host="127.0.0.1", port=port, user="secured")

        until(greets, AssertionError)
        yield f"mariadb://secured@127.0.0.1:{port}/shop"
    finally:
        process.kill()
        process.wait(60)


@pytest.fixture(params=["postgresql", "mariadb"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


FULL = {
    "sslmode": "verify-full", "sslrootcert": "ca.pem", "sslcert": "secured.pem",
    "sslkey": "secured.pem",
}  # fmt: skip


def ping(url: str, certificates: Path, **changes: str | None) -> str:
    options = {name: value for name, value in (FULL | changes).items() if value is not None}
    store: Any = open_store(StoreSettings("shop", url, options, root=str(certificates)))
    try:
        return str(store.ping().product)
    finally:
        store.close()


@pytest.mark.parametrize(
    "changes",
    [{}, {"sslmode": "verify-ca"}, {"sslmode": "require", "sslrootcert": None}],
    ids=["verify-full", "verify-ca", "require"],
)
def test_tls_with_a_client_certificate(
    url: str, certificates: Path, changes: dict[str, str | None]
) -> None:
    assert ping(url, certificates, **changes) in ("PostgreSQL", "MariaDB")


@pytest.mark.parametrize(
    "changes",
    [
        {"sslcert": None, "sslkey": None},
        {"sslrootcert": "other/ca.pem"},
        {"sslmode": "disable"},
    ],
    ids=["no certificate", "another authority", "no TLS"],
)
def test_what_the_server_or_we_can_not_trust_is_refused(
    url: str, certificates: Path, changes: dict[str, str | None]
) -> None:
    with pytest.raises(MigratorError) as caught:
        ping(url, certificates, **changes)
    assert caught.value.where.startswith("shop")
    assert "ssl" in caught.value.hint or "user" in caught.value.hint


def test_a_server_that_keeps_no_binary_log_is_named_with_the_setting(
    mariadb: str, certificates: Path
) -> None:
    """This server is one that was installed and never told to keep one."""
    port = urlsplit(mariadb).port or 0
    shown = {"ssl_ca": "ca.pem", "ssl_cert": "secured.pem", "ssl_key": "secured.pem"}
    tls: dict[str, Any] = {name: str(certificates / file) for name, file in shown.items()}
    with pymysql.connect(
        host="127.0.0.1", port=port, user="secured", database="shop", **tls
    ) as plain:
        plain.cursor().execute("CREATE TABLE games (id varchar(20) PRIMARY KEY, v integer)")
        store: Any = open_store(StoreSettings("shop", mariadb, FULL, root=str(certificates)))
        journal = store.collection("Game", At("shop", tables("games"), ["/Game/*"])).journal("run")
        what, hint = "log_bin is 0, not 1", "set log_bin in the server's configuration"
        (told,) = [text for severity, code, text in journal.findings() if code == "log-bin"]
        with pytest.raises(Refused, match=what) as refused:
            journal.prepare()
        store.close()
        assert told.startswith(f"{what}; {hint}")
        assert hint in refused.value.hint
        cursor = plain.cursor()
        cursor.execute("SHOW TABLES")
        assert list(cursor.fetchall()) == [("games",)]
        cursor.execute("DROP TABLE games")


def test_the_name_of_the_server_is_verified(url: str, certificates: Path) -> None:
    elsewhere = url.replace("127.0.0.1", "localhost")  # which the certificate does not name
    with pytest.raises(MigratorError) as caught:
        ping(elsewhere, certificates)
    assert "sslrootcert" in caught.value.hint


def test_a_key_that_others_may_read_is_refused_at_once(
    postgresql: str, certificates: Path, tmp_path: Path
) -> None:
    key = tmp_path / "open.pem"  # in a folder whose name says nothing of certificates
    shutil.copyfile(certificates / "secured.pem", key)
    key.chmod(0o644)
    with pytest.raises(Terminal, match="private key file") as caught:
        ping(postgresql, certificates, sslkey=str(key))
    assert "sslkey" in caught.value.hint


def test_a_server_that_dies_behind_tls_is_lost_and_not_refused(
    server: tuple[str, Do], certificates: Path
) -> None:
    """What libpq says then has the word SSL in it, as a refusal has."""
    url, do = server
    caught: list[Exception] = []

    def ask() -> None:
        with psycopg.connect(url, **by_certificate(certificates)) as db:
            try:
                db.execute("SELECT pg_sleep(600)")
            except psycopg.Error as error:
                caught.append(error)

    with psycopg.connect(url, autocommit=True, **by_certificate(certificates)) as other:
        asking = threading.Thread(target=ask)
        asking.start()

        def asked() -> None:
            query = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(600)'"
            assert other.execute(query).fetchone() == (1,)

        until(asked, AssertionError)
    do("kill")
    asking.join(120)
    started = do("up")
    assert started.returncode == 0, started.stdout + started.stderr
    (error,) = caught
    assert classify(error) == (Sort.LOST, "unreachable"), str(error)
