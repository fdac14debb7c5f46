"""C48: a deadline that cells can't count is told by the plan; nothing is capped or overflows."""

from __future__ import annotations

import time

import pytest

from migrator.model.block import Aggregate, cut
from migrator.model.layouts import cassandra_table
from migrator.model.move import At, Layout
from tests.hard_cases.bench import plan
from tests.hard_cases.cassandra_bench import CassandraBench, cassandra_bench
from tests.system import kit

__all__ = ["cassandra_bench"]
YEAR = 365 * 86_400_000
TYPED = cassandra_table(key="id", columns={"id": "text"})


@pytest.mark.parametrize("layout", [Layout("row"), TYPED], ids=["row", "table"])
def test_far_deadlines_are_findings(cassandra_bench: CassandraBench, layout: Layout) -> None:
    now = int(time.time() * 1000)
    far = {"soon": now + YEAR, "2039": 69 * YEAR, "bob": 70 * YEAR, "late": now + 25 * YEAR}
    source, target = At("emb", "c48"), At("wide", kit.fresh("c48"), [], layout)
    shop = cassandra_bench.shop(
        ("At('emb', 'c48')", f"At('wide', {target.collection!r}, layout={layout!r})")
    )
    with shop.open() as project:
        things = cassandra_bench.collection(project, source)
        things.create()
        rules = source.rules("Thing")
        things.write([cut(Aggregate(id, {"id": id}, ends), rules) for id, ends in far.items()])
    told = {finding.text: finding for finding in plan(shop).errors}
    assert {(f.code, f.path) for f in told.values()} == {("E103", "(expires)")}
    assert sorted(f.keys for f in told.values()) == [["Thing:2039", "Thing:bob"], ["Thing:late"]]
    assert any("after January 2038" in text for text in told)
    assert any("more than 20 years away" in text for text in told)
