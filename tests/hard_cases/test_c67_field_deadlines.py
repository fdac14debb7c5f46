"""C67: deadlines of single hash fields travel where a layout has them, else the plan tells of them
before anything moves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from migrator import commands
from migrator.model.move import At
from migrator.model.phase import Phase
from tests.contract import own_redis
from tests.contract.own_redis import Own
from tests.hard_cases.redis_bench import RedisBench, redis_bench
from tests.system import kit

__all__ = ["redis_bench"]

SOON, LATER = 4_102_444_800_000, 4_102_444_800_001


@pytest.fixture
def valkey_bench(tmp_path: Path) -> Iterator[RedisBench]:
    """As ``redis_bench``, over a server that has deadlines of single fields."""
    server = Own(tmp_path, program=own_redis.valkey())
    with redis.Redis.from_url(server.url) as plain:
        yield RedisBench(tmp_path, server.url, plain)
    server.stop()


def keys(name: str) -> str:
    layout = f"redis_native('{name}:{{id}}', ends=('{name}:{{id}}', 'deadlines'))"
    return f"At('cache', '{name}', layout={layout})"


def fill(plain: redis.Redis) -> None:
    for n in range(20):
        plain.hset(f"h:{n}", mapping={"f1": "v", "f2": "v", "f3": "v"})
    for key, field, moment in (("h:1", "f1", SOON), ("h:1", "f2", LATER), ("h:2", "f3", SOON)):
        plain.execute_command("HPEXPIREAT", key, moment, "FIELDS", 1, field)


def deadlines(plain: redis.Redis, name: str) -> list[object]:
    ask = "HPEXPIRETIME"
    return [
        plain.execute_command(ask, f"{name}:{n}", "FIELDS", 3, "f1", "f2", "f3") for n in (1, 2)
    ]


def test_they_travel_from_native_to_native_and_by_another_store(valkey_bench: RedisBench) -> None:
    plain = valkey_bench.plain
    fill(plain)
    shop = valkey_bench.shop(
        (keys("h"), keys("there")),
        (keys("there"), "At('emb', 'c67')"),
        ("At('emb', 'c67')", keys("back")),
    )
    for revision in shop.revisions:
        kit.carry(shop, revision, accept=["redis-persistence"])
    expected = [[SOON, LATER, -1], [-1, -1, SOON]]
    assert deadlines(plain, "h") == expected
    assert deadlines(plain, "there") == expected
    assert deadlines(plain, "back") == expected
    held = valkey_bench.contents(shop, At("emb", "c67"))
    assert sum(bool(record["ends"]) for _, record in held.values()) == 2


def test_a_deadline_that_was_changed_is_found(valkey_bench: RedisBench) -> None:
    fill(valkey_bench.plain)
    shop = valkey_bench.shop((keys("h"), keys("there")))
    with shop.open() as project:
        terms = commands.Terms(accept=["redis-persistence"])
        plan = commands.plan(project, "0001")
        commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)
        valkey_bench.plain.execute_command("HPEXPIREAT", "there:2", LATER, "FIELDS", 1, "f3")
        (found,) = commands.verify_run(project, "0001")
    assert (found.differ, found.told[0].paths[0].split(":")[0]) == (1, "ends.f3")


def test_where_the_layout_leaves_them_out_the_plan_says_so(valkey_bench: RedisBench) -> None:
    fill(valkey_bench.plain)
    shop = valkey_bench.shop(("At('cache', 'h')", "At('emb', 'c67')"))
    with shop.open() as project:
        told = {f.code: f for f in commands.plan(project, "0001").findings}
        assert told["redis-field-expiry"].severity == "accept"
        assert told["redis-field-expiry"].text.startswith("2 hashes")
    shop = valkey_bench.shop((keys("h"), keys("there")))
    with shop.open() as project:
        assert "redis-field-expiry" not in {f.code for f in commands.plan(project, "0001").findings}


def test_a_server_without_them_is_an_error_of_the_plan(
    redis_bench: RedisBench, valkey_bench: RedisBench
) -> None:
    """The tests' own Redis is a 7.0."""
    fill(valkey_bench.plain)
    shop = kit.Shop(valkey_bench.root, {"cache": valkey_bench.url, "old": redis_bench.url})
    shop.script(f"move = {kit.move('Thing', keys('h'), keys('h').replace('cache', 'old'))}")
    with shop.open() as project:
        errors = {f.code for f in commands.plan(project, "0001").errors}
    version = redis_bench.plain.info("server")["redis_version"]
    newer = tuple(map(int, version.split(".")[:2])) >= (7, 4)
    assert errors == (set() if newer else {"redis-no-field-expiry"})
