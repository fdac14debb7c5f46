"""Live moves from Redis without its replication: a cluster, and a server that cuts us off."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from tests.contract import servers
from tests.contract.own_redis import Own
from tests.system import kit
from tests.system.application import Application, Held, Rounds, mirroring
from tests.system.kit import Shop
from tests.system.test_live_feeds import on_sqlite
from tests.system.test_live_redis import Life, living, told, until

_OLD = 60


class Texts:
    """Games as an application lays them out: a JSON text for each."""

    def __init__(self, client: Any, name: str) -> None:
        self.client = client
        self.name = name

    def put(self, key: str, number: int, rounds: Rounds) -> None:
        told = [{"pos": place, "spell": spell} for place, spell in enumerate(rounds)]
        game = {"id": key, "n": number, "rounds": told}
        self.client.set(f"{self.name}:{key}", json.dumps(game))

    def append(self, key: str, place: int, spell: str) -> None:
        game = json.loads(self.client.get(f"{self.name}:{key}"))
        game["rounds"].append({"pos": place, "spell": spell})
        self.client.set(f"{self.name}:{key}", json.dumps(game))

    def delete(self, key: str) -> None:
        self.client.delete(f"{self.name}:{key}")

    def held(self) -> dict[str, Held]:
        found: dict[str, Held] = {}
        for place in list(self.client.scan_iter(match=f"{self.name}:*")):
            game = json.loads(self.client.get(place))
            found[game["id"]] = game["n"], [each["spell"] for each in game["rounds"]]
        return found

    def close(self) -> None:
        self.client.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Own]:
    server = Own(tmp_path)
    yield server
    server.stop()


@pytest.fixture(params=["one server", "cluster"])
def life(request: pytest.FixtureRequest, tmp_path: Path, own: Own) -> Iterator[Life]:
    """From texts of Redis to tables of SQLite."""
    name = f"{servers.namespace()}{kit.fresh('live')}"
    if request.param == "cluster":
        url = servers.rediscluster()
        parts = urlsplit(url)
        client = lambda: redis.RedisCluster(parts.hostname or "", parts.port or 0)  # noqa: E731
    else:
        url = own.url
        client = lambda: redis.Redis(port=own.port)  # noqa: E731
    first = Texts(client(), name)
    for number in range(_OLD):
        first.put(f"old-{1000 + number}", number, ["a", "b"][: number % 3])
    tables = on_sqlite(tmp_path / "sql.db", name)
    tables.make()
    shop = Shop(tmp_path, {"sql": "sqlite:///sql.db", "cache": url})
    with shop.config.open("a") as settings:
        settings.write(f'[env.{kit.ENV}.stores.cache.options]\nfeed = "tracking"\n')
    shop.script(
        f"move = Move('Game', source=At('cache', '{name}', layout='string'), "
        f"target=At('sql', tables('{name}', rounds=tables('{name}_round', order_by='pos'))))"
    )
    sides = {
        "source": lambda: Texts(client(), name),
        "target": lambda: on_sqlite(tmp_path / "sql.db", name),
    }
    with living(shop, Application(sides, writers=2)) as life:
        life.begin("redis-tracking")
        life.first = first  # type: ignore[attr-defined]
        yield life
    for key in first.held():
        first.delete(key)
    first.close()
    tables.close()


# One server is followed so where owners are killed: ``test_live_deaths.py``.
@pytest.mark.parametrize("life", ["cluster"], indirect=True)
def test_nothing_is_lost_there_and_back(life: Life) -> None:
    with mirroring(life.shop):
        life.go_on()
        for word in ("cutover", "rollback", "cutover"):
            life.swap(word)
    life.assert_nothing_lost()


@pytest.mark.parametrize("life", ["one server"], indirect=True)
def test_what_nobody_listened_to_is_found(life: Life) -> None:
    with mirroring(life.shop), life.shop.open() as project:
        life.go_on()
        life.first.client.client_kill_filter(_type="normal", skipme=True)  # type: ignore[attr-defined]
        life.go_on()
        until(lambda: {"feed lost", "scanned anew"} <= told(project), life.application)
    life.assert_nothing_lost()
