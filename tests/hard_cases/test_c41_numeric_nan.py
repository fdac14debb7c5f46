"""C41: NaN of a numeric column is neither null nor zero."""

from __future__ import annotations

import pytest

from tests.hard_cases.bench import Bench, apply, error, plan
from tests.system import kit

ROWS = "VALUES (1, 'NaN'), (2, 0), (3, NULL)"


def test_nan_goes_to_documents_and_back(bench: Bench) -> None:
    table, docs, back = kit.fresh("c41"), kit.fresh("c41"), kit.fresh("c41")
    bench.sql("pg", f"CREATE TABLE {table} (id int PRIMARY KEY, n numeric)",
              f"INSERT INTO {table} {ROWS}")  # fmt: skip
    middle = f"At('docs', {docs!r})"
    shop = bench.shop(
        (f"At('pg', tables({table!r}))", middle),
        (middle, f"At('pg', tables({back!r}, key='id', "
                 "columns={'id': 'int', 'n': 'numeric'}))"),
    )  # fmt: skip
    kit.carry(shop, "0001")
    assert {d["_id"]: str(d["n"]) for d in bench.docs[docs].find()} == {1: "NaN", 2: "0", 3: "None"}
    apply(shop, plan(shop, "0002"))
    query = "SELECT id, n::text FROM {} ORDER BY id"
    assert bench.sql("pg", query.format(back)) == bench.sql("pg", query.format(table))


@pytest.mark.parametrize("there", [True, False])
def test_nan_is_refused_where_there_is_none(bench: Bench, there: bool) -> None:
    table, target = kit.fresh("c41"), kit.fresh("c41")
    bench.sql("pg", f"CREATE TABLE {table} (id int PRIMARY KEY, n numeric(5, 0))",
              f"INSERT INTO {table} {ROWS}")  # fmt: skip
    spec = f"tables({target!r}, key='id', columns={{'id': 'int', 'n': 'decimal(5,0)'}})"
    if there:
        spec = f"tables({target!r})"
        bench.sql("maria", f"CREATE TABLE {target} (id int PRIMARY KEY, n decimal(5,0))")
    shop = bench.shop((f"At('pg', tables({table!r}))", f"At('maria', {spec})"))
    found = error(plan(shop))
    assert (found.path, found.keys, found.count) == ("n", ["Thing:1"], 1)
