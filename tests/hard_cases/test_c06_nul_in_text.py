"""C06: U+0000 that PostgreSQL refuses is told before, and poisons no other row."""

from __future__ import annotations

import pytest

from tests.hard_cases.bench import Bench, apply, error, plan
from tests.system import kit


@pytest.mark.parametrize("oversize", ["refuse", "quarantine"])
def test_a_nul_in_the_middle_of_a_batch(bench: Bench, oversize: str) -> None:
    one, table = kit.fresh("c06"), kit.fresh("c06")
    texts = {n: f"text {n}" for n in range(500)} | {250: "ab\0cd", 251: "\\u0000x"}
    bench.docs[one].insert_many([{"_id": n, "id": n, "name": t} for n, t in texts.items()])
    columns = {"id": "int", "name": "text"}
    target = f"At('pg', tables({table!r}, key='id', columns={columns!r}))"
    shop = bench.shop(kit.move("Thing", f"At('docs', {one!r})", target, oversize=oversize))
    made = plan(shop)
    if oversize == "refuse":
        found = error(made)
        assert (found.path, found.keys, found.count) == ("name", ["Thing:250"], 1)
        return
    apply(shop, made, accept=True, keys=["Thing:250"])
    del texts[250]
    assert dict(bench.sql("pg", f"SELECT id, name FROM {table}")) == texts
