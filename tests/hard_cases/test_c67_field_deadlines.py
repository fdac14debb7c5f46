"""C67: deadlines of single hash fields are told by the plan before anything moves."""

from __future__ import annotations

import redis

from migrator import commands
from migrator.stores.redis.findings import of_both_sides
from tests.hard_cases.redis_bench import RedisBench, redis_bench

__all__ = ["redis_bench"]


def test_hashes_whose_fields_expire_are_a_finding(redis_bench: RedisBench) -> None:
    """Where the server is too old to have them, what a newer one says is read all the same."""
    newer = {"role": "master", "db0": "keys=3,expires=0,avg_ttl=0,subexpiry=2"}
    ((severity, code, text),) = of_both_sides([newer], 0)
    assert (severity, code) == ("accept", "redis-field-expiry")
    assert text.startswith("2 hashes")
    plain = redis_bench.plain
    plain.hset("h:1", mapping={"f1": "v", "f2": "v"})
    try:
        plain.execute_command("HPEXPIRE", "h:1", 60_000, "FIELDS", 1, "f2")
    except redis.ResponseError:
        return
    shop = redis_bench.shop(("At('cache', 'h')", "At('emb', 'c67')"))
    with shop.open() as project:
        codes = [finding.code for finding in commands.plan(project, "0001").findings]
    assert "redis-field-expiry" in codes
