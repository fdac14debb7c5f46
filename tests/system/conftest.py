"""Databases of these tests' own, on the servers that everybody shares."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest

from tests.conftest import server_url, tidy
from tests.contract import servers as own
from tests.system import servers
from tests.system.kit import Odd, Place, Shop, Urls

DATABASE = f"migrator_system_{os.getpid()}"
# Servers without databases to make: what is of this process alone says the module itself.
SHARED = {
    "redis": own.redis,
    "rediscluster": own.rediscluster,
    "dynalite": partial(own.dynamodb, "dynalite"),
    "cassandra": own.cassandra,
}


def _with_database(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


@pytest.fixture(scope="session")
def database_url() -> Iterator[servers.MakeDatabase]:
    """Make an empty database on a server, by a name that is new here; all go at the end."""
    made: dict[str, str] = {}

    def make(server: str, name: str = "") -> str:
        database = f"{DATABASE}_{name}" if name else DATABASE
        url = server_url(server)
        if f"{server}:{database}" not in made:
            servers.drop(server, url, database)
            servers.create(server, url, database)
            made[f"{server}:{database}"] = url
        return _with_database(url, database)

    yield make
    for key, url in made.items():
        server, _, database = key.partition(":")
        tidy(server, partial(servers.drop, server, url, database))


@pytest.fixture
def urls(database_url: servers.MakeDatabase) -> Urls:
    """The URL of a store at a server's database, or in a file beside ``migrator.toml``."""

    def url(server: str | None, name: str) -> str:
        if server in SHARED:
            return SHARED[server]()
        if server is not None:
            return database_url(server)
        return f"{'embedded' if name.startswith('embedded') else 'sqlite'}:///{name}.db"

    return url


@pytest.fixture
def odd(request: pytest.FixtureRequest, urls: Urls) -> Odd:
    """Odd games that the servers of the test's places can hold."""
    if not any(place.server == "mongodb" for place in _places(request)):
        return Odd()
    return servers.held_by_mongodb(urls("mongodb", ""))


def _places(request: pytest.FixtureRequest) -> list[Place]:
    params = getattr(request.node, "callspec", None)
    return [p for p in (params.params.values() if params else ()) if isinstance(p, Place)]


@pytest.fixture
def shop(tmp_path: Path, urls: Urls, request: pytest.FixtureRequest) -> Shop:
    """A project that knows the places of the test: its parameters of type ``Place``."""
    stores = {place.store: urls(place.server, place.store) for place in _places(request)}
    return Shop(tmp_path, stores)
