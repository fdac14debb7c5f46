"""C12: pages by key lose no row; a key that is NULL in part is refused by name."""

from __future__ import annotations

import pytest

from migrator.errors import Refused
from tests.hard_cases.bench import Bench, apply, plan
from tests.system import kit

STORES = ("pg", "maria", "lite")
COLLATED = {
    "pg": 'varchar(20) COLLATE "en-x-icu"',
    "maria": "varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
    "lite": "TEXT COLLATE NOCASE",
}


@pytest.mark.parametrize("store", STORES)
def test_a_key_with_null_is_refused(bench: Bench, store: str) -> None:
    table = kit.fresh("c12")
    bench.sql(
        store,
        f"CREATE TABLE {table} (region varchar(9), code int, UNIQUE (region, code))",
        f"INSERT INTO {table} VALUES ('eu',1),('eu',2),(NULL,1),(NULL,2),(NULL,3)",
    )
    source = f"At({store!r}, tables({table!r}, key=['region', 'code']))"
    shop = bench.shop((source, "At('emb', 'c12')"))
    with pytest.raises(Refused, match=table):
        plan(shop)


@pytest.mark.parametrize("store", STORES)
def test_an_order_that_is_not_pythons(bench: Bench, store: str) -> None:
    table = kit.fresh("c12")
    keys = ["b", "A", "ä2", "Z", "a1", "é", "B1", "z2", "E2", "_", "~", "10", "9"]
    columns = f"id {COLLATED[store]} NOT NULL, n int NOT NULL"
    rows = ", ".join(f"('{key}', {n})" for n in (2, 1) for key in keys)
    bench.sql(
        store,
        f"CREATE TABLE {table} ({columns}, PRIMARY KEY (id, n))",
        f"INSERT INTO {table} VALUES {rows}",
    )
    shop = bench.shop((f"At({store!r}, tables({table!r}))", "At('emb', 'c12')"))
    (found,) = apply(shop, plan(shop, page=2))
    assert found.equal == 2 * len(keys)
