"""Places of the tests' own on each server: of this process alone, so runs can go side by side."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from migrator.ports import Collection
from tests.conftest import at_the_end, server_url

_DRIVERS = {"postgresql": "postgresql+psycopg", "mariadb": "mysql+pymysql"}
_LONG = 60.0  # seconds
_OURS = re.compile(r"migtest(\d+)_?")
_FORGET = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('del', KEYS[1]) end return 1"


@cache
def database(server: str) -> str:
    """The URL of a fresh database; skips or fails without its server, as ``server_url`` does."""
    url = make_url(server_url(server))
    name = f"{namespace()}contract"
    engine = create_engine(
        url.set(drivername=_DRIVERS[server], query={}), isolation_level="AUTOCOMMIT"
    )

    def run(*statements: str) -> None:
        with engine.connect() as connection:
            for statement in statements:
                connection.execute(text(statement))
        engine.dispose()

    run(f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}")
    at_the_end.append(
        lambda: run(f"DROP DATABASE {name}{' WITH (FORCE)' if server == 'postgresql' else ''}")
    )
    return url.set(database=name).render_as_string(hide_password=False)


def namespace() -> str:
    """A prefix for names of tables, keys and keyspaces: small letters, digits, ``_`` at the end.

    No other process has it, be it of this run or of another.
    """
    return f"migtest{os.getpid()}_"


def _left_behind(name: str) -> bool:
    """Whether a name comes from a process that was ended before it could tidy up."""
    found = _OURS.match(name)
    return found is not None and not os.path.exists(f"/proc/{found[1]}")


@cache
def redis() -> str:
    """The URL of an emptied database on the Redis server; emptied again at the end."""
    import redis as driver

    url = server_url("redis")
    with driver.Redis.from_url(url) as server:
        databases = int(server.config_get("databases")["databases"])
        first, mine = os.getpid(), namespace()
        # Two processes' numbers may be the same modulo that: who comes first has it.
        while True:
            number = 1 + first % (databases - 1)
            claim = f"migtest-database-{number}"
            holder = server.set(claim, mine, nx=True, get=True)
            if holder is None or holder.decode() == mine:
                break
            if _left_behind(holder.decode()):
                server.eval(_FORGET, 1, claim, holder)
            else:
                first += 1
    own = urlsplit(url)._replace(path=f"/{number}").geturl()
    client = driver.Redis.from_url(own)
    client.flushdb()

    def sweep() -> None:
        client.flushdb()
        with driver.Redis.from_url(url) as server:
            server.delete(claim)

    at_the_end.append(sweep)
    return own


@cache
def rediscluster() -> str:
    """The URL of the Redis cluster; keys that start with ``namespace()`` go at the end."""
    import redis as driver

    url = server_url("rediscluster")
    parts = urlsplit(url)
    client = driver.RedisCluster(parts.hostname or "", parts.port or 0)

    def sweep() -> None:
        prefix = namespace().encode()
        for key in list(client.scan_iter(match=f"*{namespace()}*", count=1000)):
            if key.lstrip(b"{").startswith(prefix):
                client.delete(key)

    at_the_end.append(sweep)
    return url


@cache
def dynamodb(server: str = "dynamodb") -> str:
    """The URL of ``dynamodb`` (moto) or ``dynalite``; tables of ``namespace()`` go at the end."""
    import boto3

    url = server_url(server)
    parts = urlsplit(url)
    client: Any = boto3.client(
        "dynamodb",
        endpoint_url=f"http://{parts.netloc}",
        region_name=parse_qs(parts.query)["region"][0],
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )

    def sweep() -> None:
        pages = client.get_paginator("list_tables").paginate()
        for name in [name for page in pages for name in page["TableNames"]]:
            if name.startswith(namespace()) or _left_behind(name):
                with suppress(client.exceptions.ResourceNotFoundException):  # swept beside us
                    client.delete_table(TableName=name)

    sweep()
    at_the_end.append(sweep)
    return url


@cache
def _cassandra() -> tuple[Any, str]:
    """A session of the plain driver in an empty keyspace, which goes at the end; and its name."""
    name = namespace().rstrip("_")
    session = _cassandra_session()
    for row in session.execute("SELECT keyspace_name FROM system_schema.keyspaces"):
        if row.keyspace_name == name or _left_behind(row.keyspace_name):
            session.execute(f"DROP KEYSPACE IF EXISTS {row.keyspace_name}")
    session.execute(
        f"CREATE KEYSPACE {name} WITH replication ="
        " {'class': 'SimpleStrategy', 'replication_factor': 1}"
    )

    def sweep() -> None:
        session.execute(f"DROP KEYSPACE IF EXISTS {name}")
        session.cluster.shutdown()

    at_the_end.append(sweep)
    return session, name


def _cassandra_session(keyspace: str | None = None) -> Any:
    """A session of the plain driver that gives a busy server time, from its first request on."""
    from cassandra.cluster import Cluster

    parts = urlsplit(server_url("cassandra"))
    cluster = Cluster(
        [parts.hostname], port=parts.port, protocol_version=5, connect_timeout=_LONG,
        control_connection_timeout=_LONG,
    )  # fmt: skip
    session = cluster.connect(keyspace)
    session.default_timeout = _LONG
    return session


@contextmanager
def plain_cassandra() -> Iterator[Any]:
    """A session of the plain driver in the keyspace of this process alone."""
    session = _cassandra_session(_cassandra()[1])
    try:
        yield session
    finally:
        session.cluster.shutdown()


def cassandra() -> str:
    """The URL of a keyspace of this process alone."""
    return urlsplit(server_url("cassandra"))._replace(path=f"/{_cassandra()[1]}").geturl()


def empty_cassandra(collection: Collection) -> None:
    """Take all rows out of a collection's tables: making tables anew takes Cassandra seconds."""
    session, keyspace = _cassandra()
    query = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s"
    for (name,) in session.execute(query, [keyspace]):
        if name.startswith(collection.at.collection):
            session.execute(f'TRUNCATE {keyspace}."{name}"')


def tried_on(other: str) -> dict[str, str]:
    """Promises about values, which the same code keeps on another server that is tried in full."""
    reason = f"values are held by the same code on {other}, where each of them is tried"
    return dict.fromkeys(("every_value_of_a_kind*", "patch_changes_what_it_names*"), reason)
