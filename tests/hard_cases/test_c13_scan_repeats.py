"""C13: SCAN repeats keys while a table shrinks; a walk gives each key once, and loses none."""

from __future__ import annotations

from migrator.model.move import At
from tests.hard_cases.redis_bench import RedisBench, redis_bench, walk
from tests.system import kit

__all__ = ["redis_bench"]


def test_a_table_that_shrinks_under_the_walk(redis_bench: RedisBench) -> None:
    shop = redis_bench.shop(("At('cache', 'q')", "At('emb', 'c13')"))
    pipeline = redis_bench.plain.pipeline()
    for n in range(10_000):
        pipeline.hset(f"q:{n}", "v", str(n))
    pipeline.execute()
    with shop.open() as project:
        place = project.stores.get("cache").collection("Thing", At("cache", "q"))
        seen: list[object] = []
        for page in walk(place, 100):
            seen += page
            if len(seen) == 500:
                gone = [n for n in range(10_000) if n % 10]
                redis_bench.plain.delete(*(f"q:{n}" for n in gone))
                for n in range(50):
                    redis_bench.plain.hset(f"q:late{n}", "v", "x")
        assert len(seen) == len(set(seen))
        assert {f"{n}" for n in range(0, 10_000, 10)} <= set(seen)
        assert place.count() == 1050
    kit.carry(shop, "0001")
    assert len(redis_bench.contents(shop, At("emb", "c13"))) == 1050
