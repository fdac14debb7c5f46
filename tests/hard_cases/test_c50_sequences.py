"""C50: the first row inserted after the cut-over gets an identifier of its own."""

from __future__ import annotations

import pytest

from migrator import commands
from migrator.commands import SwapTerms
from migrator.model.move import At
from migrator.model.value import Record, Value
from tests.hard_cases.bench import Bench, apply, plan
from tests.system import kit

TABLE = "c50_counted"
TYPES = {
    "pg": "serial PRIMARY KEY",
    "maria": "int NOT NULL AUTO_INCREMENT PRIMARY KEY",
    "lite": "INTEGER PRIMARY KEY AUTOINCREMENT",
}


@pytest.mark.parametrize("store", list(TYPES))
def test_an_insert_without_an_id_after_the_cut_over(bench: Bench, store: str) -> None:
    table = kit.fresh("c50")
    bench.sql(store, f"CREATE TABLE {table} (id {TYPES[store]}, n int)")
    shop = bench.shop(("At('emb', 'c50')", f"At({store!r}, tables({table!r}))"))
    bench.fill(shop, At("emb", "c50"), [(n, {"id": n, "n": n}) for n in range(1, 1001)])
    apply(shop)
    bench.sql(store, f"INSERT INTO {table} (n) VALUES (7)")
    ((count, highest),) = bench.sql(store, f"SELECT count(*), max(id) FROM {table}")
    assert (count, highest > 1000) == (1001, True)


@pytest.mark.parametrize(("store", "live"), [*((store, False) for store in TYPES), ("lite", True)])
def test_no_number_is_given_of_a_block_that_was_left_out(
    bench: Bench, store: str, *, live: bool
) -> None:
    """It lies on the old side alone: a new block of that number would be written over it there."""
    table = kit.fresh("c50")
    bench.sql(store, f"CREATE TABLE {table} (id {TYPES[store]}, n int)")
    shop = bench.shop(
        f"Move('Thing', source=At('emb', 'c50'), target=At({store!r}, tables({table!r})), "
        "oversize='quarantine')"
    )
    things: list[tuple[Value, Record]] = [(1, {"id": 1, "n": 1}), (900, {"id": 900, "n": [1]})]
    bench.fill(shop, At("emb", "c50"), things)
    with shop.open() as project:
        made = commands.plan(project, "0001", live=live)
        terms = commands.Terms(
            accept=[finding.code for finding in made.to_accept],
            accept_keys=("Thing:900",),
            swap=SwapTerms(gateways=True, bound=60, lag=60, accept_keys=("Thing:900",)),
        )
        commands.apply(project, made, terms=terms)
        assert project.control.run("0001").primary == "target"
        bench.sql(store, f"INSERT INTO {table} (n) VALUES (7)")
        ((highest,),) = bench.sql(store, f"SELECT max(id) FROM {table}")
        assert highest > 900
        if live:
            commands.rollback(project, "0001", swap=terms.swap)
            commands.abort(project, "0001", drop_target=False)
    held = bench.contents(shop, At("emb", "c50"))
    assert [record["n"] for id, record in held.values() if id == 900] == [[1]]


@pytest.mark.parametrize(
    ("source", "target", "told"),
    [
        (
            f"At('lite', tables({TABLE!r}))",
            "At('emb', 'c50')",
            "gives numbers to its blocks (up to 3)",
        ),
        ("At('emb', 'c50')", f"At('lite', tables({TABLE!r}))", "a counter of the application's"),
        ("At('emb', 'c50')", "At('docs', 'c50')", "a counter of the application's"),
    ],
    ids=["from numbers", "to numbers", "by counters"],
)
def test_a_counter_that_does_not_come_along_is_told(
    bench: Bench, source: str, target: str, told: str
) -> None:
    bench.sql("lite", f"CREATE TABLE {TABLE} (id INTEGER PRIMARY KEY AUTOINCREMENT, n int)")
    bench.sql("lite", f"INSERT INTO {TABLE} (n) VALUES (1), (2), (3)")
    shop = bench.shop((source, target))
    if "emb" in source:
        bench.fill(shop, At("emb", "c50"), [(n, {"id": n, "n": n}) for n in range(1, 4)])
    (found,) = [each for each in plan(shop).findings if each.code in ("W124", "N125")]
    assert (found.code == "W124", told in found.text) == ("numbers" in told, True), found.text
    assert "3" in found.text
