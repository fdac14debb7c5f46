"""C61: only zero and partial dates are odd; early years are dates, and other rows arrive."""

from __future__ import annotations

import pytest

from tests.hard_cases.bench import Bench, apply, plan
from tests.system import kit

DATES = {1: "0000-00-00", 2: "0009-12-04", 3: "2024-00-10", 4: "2001-02-03"}


def table_of_dates(bench: Bench) -> str:
    table = kit.fresh("c61")
    bench.sql(
        "maria",
        f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY, d date NOT NULL)",
        "SET sql_mode = ''",
        f"INSERT INTO {table} VALUES " + ", ".join(f"({n}, '{d}')" for n, d in DATES.items()),
    )
    return table


@pytest.mark.parametrize("oversize", ["refuse", "quarantine"])
def test_zero_dates_on_the_way_to_postgresql(bench: Bench, oversize: str) -> None:
    table, target = table_of_dates(bench), kit.fresh("c61")
    columns = {"id": "int", "d": "date NOT NULL"}
    to = f"At('pg', tables({target!r}, key='id', columns={columns!r}))"
    shop = bench.shop(kit.move("Thing", f"At('maria', tables({table!r}))", to, oversize=oversize))
    made = plan(shop)
    found = made.errors if oversize == "refuse" else made.to_accept
    assert sorted(key for each in found for key in each.keys) == ["Thing:1", "Thing:3"]
    if oversize == "quarantine":
        apply(shop, made, accept=True, keys=["Thing:1", "Thing:3"])
        rows = bench.sql("pg", f"SELECT id, d::text FROM {target} ORDER BY id")
        assert rows == [(2, "0009-12-04"), (4, "2001-02-03")]


def test_zero_dates_go_to_documents_and_back(bench: Bench) -> None:
    table, docs, back = table_of_dates(bench), kit.fresh("c61"), kit.fresh("c61")
    bench.sql("maria", f"CREATE TABLE {back} LIKE {table}")
    middle = f"At('docs', {docs!r})"
    shop = bench.shop(
        (f"At('maria', tables({table!r}))", middle), (middle, f"At('maria', tables({back!r}))")
    )
    kit.carry(shop, "0001")
    apply(shop, plan(shop, "0002"))
    rows = bench.sql("maria", f"SELECT id, CAST(d AS CHAR) FROM {back} ORDER BY id")
    assert dict(rows) == DATES
