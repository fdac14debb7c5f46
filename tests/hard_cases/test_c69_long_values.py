"""C69: nothing is cut: what is over a limit is refused before, what fits arrives whole."""

from __future__ import annotations

import pytest

from migrator.model.move import At
from tests.hard_cases.bench import Bench, apply, error, plan
from tests.system import kit

EMOJI = "\U0001f600"


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("store", ["pg", "maria"])
def test_a_value_over_the_columns_length_is_refused(bench: Bench, store: str, there: bool) -> None:
    table = kit.fresh("c69")
    spec = f"tables({table!r}, key='id', columns={{'id': 'int', 't': 'varchar(100)'}})"
    if there:
        spec = f"tables({table!r})"
        bench.sql(store, f"CREATE TABLE {table} (id int PRIMARY KEY, t varchar(100))")
    shop = bench.shop(("At('emb', 'c69')", f"At({store!r}, {spec})"))
    values = {1: "x" * 99 + EMOJI, 2: "x" * 100 + EMOJI, 3: EMOJI * 100}
    bench.fill(shop, At("emb", "c69"), [(n, {"id": n, "t": t}) for n, t in values.items()])
    found = error(plan(shop))
    assert (found.path, found.keys) == ("t", ["Thing:2"])


@pytest.mark.parametrize(("store", "type_"), [("pg", "text"), ("maria", "longtext")])
def test_long_values_arrive_whole(bench: Bench, store: str, type_: str) -> None:
    name = kit.fresh("c69")
    columns = {"id": "int", "t": type_}
    shop = bench.shop(
        ("At('emb', 'c69')", f"At({store!r}, tables({name!r}, key='id', columns={columns!r}))")
    )
    values = {1: "x" * 32_767 + EMOJI, 2: "x" * 32_768 + EMOJI, 3: EMOJI * 300_000}
    bench.fill(shop, At("emb", "c69"), [(n, {"id": n, "t": t}) for n, t in values.items()])
    apply(shop)
    assert dict(bench.sql(store, f"SELECT id, t FROM {name}")) == values
