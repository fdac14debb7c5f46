"""C07: the scores of a sorted set are doubles, bit for bit, infinities included."""

from __future__ import annotations

import math
import struct

from migrator.model.move import At
from tests.hard_cases.redis_bench import RedisBench, redis_bench
from tests.system import kit

__all__ = ["redis_bench"]

SCORES = {"a": 0.09793150749791057, "b": 1e-300, "c": -math.inf, "d": math.inf, "e": 2.0**53 - 1}


def test_scores_there_and_back(redis_bench: RedisBench) -> None:
    def keys(name: str) -> str:
        layout = f"redis_native('{name}:{{id}}', 'sorted set', field='scores')"
        return f"At('cache', '{name}', layout={layout})"

    shop = redis_bench.shop((keys("z"), "At('emb', 'c07')"), ("At('emb', 'c07')", keys("back")))
    redis_bench.plain.zadd("z:1", {**SCORES, "same": 1.5, "also": 1.5})
    kit.carry(shop, "0001")
    kit.carry(shop, "0002")
    (_, held), *_ = redis_bench.contents(shop, At("emb", "c07")).values()
    assert held == {"scores": {**SCORES, "same": 1.5, "also": 1.5}}
    there, back = (redis_bench.plain.zrange(k, 0, -1, withscores=True) for k in ("z:1", "back:1"))
    assert [m for m, _ in there] == [m for m, _ in back]
    bits = [[struct.pack("d", score) for _, score in each] for each in (there, back)]
    assert bits[0] == bits[1]
