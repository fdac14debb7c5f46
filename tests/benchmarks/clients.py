"""What benchmarks ask of servers by their plain drivers: room, and to forget what was there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import redis
from cassandra.cluster import Cluster, Session

from tests.benchmarks.sides import DATABASE, Side
from tests.system import servers

KEYSPACE = "migrator_bench_live"


def connect_redis() -> redis.Redis:
    return redis.Redis.from_url(Side("redis", "hash").url())


def connect_cassandra() -> Session:
    """A session without a keyspace; closed by ``session.cluster.shutdown()``."""
    parts = urlsplit(Side("cassandra", "partition").server)
    # As the driver's own default, but without Nagle's delay (TCP_NODELAY).
    cluster = Cluster([parts.hostname], port=parts.port, sockopts=[(6, 1, 1)])
    session = cluster.connect()
    session.default_timeout = 60
    return session


@contextmanager
def keyspace() -> Iterator[str]:
    """The URL of a keyspace of one benchmark's own; it goes at the end."""
    session: Any = connect_cassandra()
    session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    session.execute(
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    try:
        yield urlsplit(Side("cassandra", "row").server)._replace(path=f"/{KEYSPACE}").geturl()
    finally:
        session.execute(f"DROP KEYSPACE {KEYSPACE}")
        session.cluster.shutdown()


def connect_dynamodb(side: Side) -> Any:
    parts = urlsplit(side.server)
    return boto3.client(
        "dynamodb",
        endpoint_url=f"http://{parts.netloc}",
        region_name=parse_qs(parts.query)["region"][0],
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


def version(side: Side) -> str:
    """What answers, for the head of a report."""
    if side.store == "redis":
        return f"Redis {connect_redis().info('server')['redis_version']} (on this machine)"
    if side.store == "cassandra":
        session = connect_cassandra()
        found = session.execute("SELECT release_version FROM system.local").one()[0]
        session.cluster.shutdown()
        return f"Cassandra {found} (on this machine)"
    return "dynalite, an emulator of DynamoDB (on this machine)"


def create(side: Side) -> None:
    """Make room for a benchmark on a server."""
    if side.store == "cassandra":
        session = connect_cassandra()
        session.execute(
            f"CREATE KEYSPACE IF NOT EXISTS {DATABASE} WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        )
        session.cluster.shutdown()
    elif side.store not in ("redis", "dynalite"):
        servers.create(side.store, side.server, DATABASE)


def drop(side: Side, names: Iterable[str]) -> None:
    """Remove what a benchmark made on a server."""
    if side.store == "cassandra":
        session = connect_cassandra()
        session.execute(f"DROP KEYSPACE IF EXISTS {DATABASE}")
        session.cluster.shutdown()
    elif side.store == "redis":
        connect_redis().flushdb()
    elif side.store == "dynalite":
        for name in names:
            forget(side, name)
    else:
        servers.drop(side.store, side.server, DATABASE)


def forget(side: Side, name: str) -> None:
    """Remove one collection, were it there."""
    if side.store == "mongodb":
        with servers.connect_mongodb(side.url()) as client:
            client.get_default_database()[name].drop()
    elif side.store == "cassandra":
        session = connect_cassandra()
        session.execute(f"DROP TABLE IF EXISTS {DATABASE}.{name}")
        session.cluster.shutdown()
    elif side.store == "redis":
        client = connect_redis()
        keys = client.scan_iter(match=f"{name}:*", count=10_000)
        while batch := [key for _, key in zip(range(1000), keys, strict=False)]:
            client.unlink(*batch)
        client.srem("_migrator:collections", name)
    elif side.store == "dynalite":
        client = connect_dynamodb(side)
        try:
            client.delete_table(TableName=name)
        except client.exceptions.ResourceNotFoundException:
            return
        client.get_waiter("table_not_exists").wait(TableName=name, WaiterConfig={"Delay": 1})
