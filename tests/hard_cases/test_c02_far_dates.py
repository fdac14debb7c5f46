"""C02: dates past the year 9999 are copied exactly, or refused when the move is planned."""

from __future__ import annotations

import pytest

from migrator.model.move import At
from migrator.model.value import NANOS, Instant, Record, Value, instant
from tests.hard_cases.bench import Bench, apply, error, plan
from tests.system import kit

NEVER: list[tuple[Value, Record]] = [
    ("d1", {"id": "d1", "t": instant(253402300800 * NANOS)}),
    ("d2", {"id": "d2", "t": Instant(-(2**63) * 1_000_000)}),
    ("d3", {"id": "d3", "t": instant(-1_000_000)}),
]


def test_far_dates_are_kept_where_they_can_be(bench: Bench) -> None:
    name = kit.fresh("c02")
    shop = bench.shop(("At('emb', 'c02')", f"At('pg', {name!r}, layout='entries')"))
    bench.fill(shop, At("emb", "c02"), NEVER)
    apply(shop)
    kit.assert_equal(bench.contents(shop, At("pg", name, layout="entries")), kit.by_key(NEVER))


@pytest.mark.parametrize("there", [True, False])
def test_far_dates_are_refused_where_they_can_not(bench: Bench, there: bool) -> None:
    table = kit.fresh("c02")
    spec = f"tables({table!r}, key='id', columns={{'id': 'varchar(9)', 't': 'timestamptz'}})"
    if there:
        spec = f"tables({table!r})"
        bench.sql("pg", f"CREATE TABLE {table} (id varchar(9) PRIMARY KEY, t timestamptz)")
    shop = bench.shop(("At('emb', 'c02')", f"At('pg', {spec})"))
    bench.fill(shop, At("emb", "c02"), NEVER)
    found = error(plan(shop))  # PostgreSQL has the year 10000, not the year -292275055
    assert (found.path, found.keys, found.count) == ("t", ["Thing:d2"], 1)
