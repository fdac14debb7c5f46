"""C50: the first row inserted after the cut-over gets an identifier of its own."""

from __future__ import annotations

import pytest

from migrator.model.move import At
from tests.hard_cases.bench import Bench, apply
from tests.system import kit

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
