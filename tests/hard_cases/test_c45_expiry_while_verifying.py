"""C45: a key that expires between the verifier's two reads is no difference."""

from __future__ import annotations

import time

import pytest

from migrator import commands
from migrator.engine import points
from tests.hard_cases.redis_bench import RedisBench, redis_bench

__all__ = ["redis_bench"]


def test_a_key_expires_while_it_is_verified(
    redis_bench: RedisBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = redis_bench.shop(("At('cache', 'from')", "At('cache', 'to', layout='keys')"))
    for n in range(20):
        redis_bench.plain.hset(f"from:{n}", "n", str(n))
    with shop.open() as project:
        plan = commands.plan(project, "0001")
        deadline = int(time.time() * 1000) + 1_500
        for n in range(5):
            redis_bench.plain.pexpireat(f"from:{n}", deadline)
        waited: list[str] = []

        def wait(point: str) -> None:
            if point == "verify.listed" and not waited:
                waited.append(point)
                time.sleep(max(0.0, deadline / 1000 - time.time() + 0.1))

        monkeypatch.setattr(points, "hook", wait)
        applied = commands.apply(project, plan)
        assert waited
        assert [each.clean for each in applied.verified] == [True]
    assert len([key for key in redis_bench.listed() if key.startswith(b"from:")]) == 15
