"""C11: a resumed copy reads every kind of _id, each document once."""

from __future__ import annotations

from bson import ObjectId

from tests.hard_cases.bench import Bench, apply, killed, plan
from tests.system import kit


def test_a_resumed_copy_skips_no_kind_of_id(bench: Bench) -> None:
    one, two = kit.fresh("c11"), kit.fresh("c11")
    ids: list[object] = [f"s{n:03}" for n in range(200)]
    ids += [ObjectId(f"{n:024x}") for n in range(90)] + list(range(9)) + [{"a": 1, "b": "x"}]
    bench.docs[one].insert_many([{"_id": id, "n": n} for n, id in enumerate(ids)])
    shop = bench.shop((f"At('docs', {one!r})", f"At('pg', {two!r}, layout='entries')"))
    made = plan(shop, page=50)
    killed(shop, made, "backfill.checkpointed", 2)
    (found,) = apply(shop, made)
    assert found.equal == bench.docs[one].count_documents({}) == len(ids)
