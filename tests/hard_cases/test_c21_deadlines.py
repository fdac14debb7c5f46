"""C21: a deadline is an absolute instant in milliseconds, whatever lies between read and write."""

from __future__ import annotations

import time

import pytest

from migrator.model.move import At
from tests.hard_cases.redis_bench import RedisBench, redis_bench

__all__ = ["redis_bench"]


@pytest.mark.parametrize("layout", ["hash", "keys", "string"])
def test_a_pause_between_read_and_write(redis_bench: RedisBench, layout: str) -> None:
    plain = redis_bench.plain
    for key in ("1", "2", "3"):
        plain.hset(f"from:{key}", "n", "x")
    deadline = int(time.time() * 1000) + 1_000_123
    plain.pexpireat("from:1", deadline)
    shop = redis_bench.shop(("At('cache', 'from')", f"At('cache', 'to', layout={layout!r})"))
    with shop.open() as project:
        store = project.stores.get("cache")
        source = store.collection("Thing", At("cache", "from"))
        target = store.collection("Thing", At("cache", "to", layout=layout))
        for life in (1_000, 5_000, 60_000):  # as long as this machine takes to read it
            plain.hset("from:3", "n", "x")
            plain.pexpire("from:3", life)
            page = source.page(None, None, 10)
            if len(page.blocks) == 3:
                break
        assert len(page.blocks) == 3
        while plain.exists("from:3"):
            time.sleep(0.1)
        target.write(page.blocks)
        found = {block.id: block.expires for block in target.page(None, None, 10).blocks}
    assert found == {"1": deadline, "2": None}
    assert not [key for key in redis_bench.listed() if b"to:3" in key]
    held = [key for key in redis_bench.listed() if b"to:1" in key]
    assert {plain.pexpiretime(key) for key in held} == {deadline}
    assert {plain.pexpiretime(k) for k in redis_bench.listed() if b"to:2" in k} == {-1}
