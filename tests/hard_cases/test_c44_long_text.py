"""C44: comparison needs neither a collation nor a hash of the server."""

from __future__ import annotations

from tests.hard_cases.bench import Bench, apply, verify
from tests.system import kit


def test_long_text_under_keys_of_two_orders(bench: Bench) -> None:
    table, target = kit.fresh("c44"), kit.fresh("c44")
    keys = ("a", "B", "ä", "z")
    long = "x" * 70_000
    bench.sql(
        "maria",
        f"CREATE TABLE {table} (id varchar(9) COLLATE utf8mb4_unicode_ci NOT NULL PRIMARY KEY, "
        "t longtext)",
        *(f"INSERT INTO {table} VALUES ('{key}', '{long}')" for key in keys if key != "ä"),
        f"INSERT INTO {table} VALUES ('ä2', '{long}')",
    )
    columns = {"id": "varchar(9)", "t": "text"}
    shop = bench.shop(
        (f"At('maria', tables({table!r}))",
         f"At('pg', tables({target!r}, key='id', columns={columns!r}))")
    )  # fmt: skip
    (found,) = apply(shop)
    assert found.equal == 4
    bench.sql("pg", f"UPDATE {target} SET t = left(t, 69999) || 'y' WHERE id = 'ä2'")
    wrong = verify(shop)
    assert [(told.key, told.what) for told in wrong.told] == [("Thing:ä2", "differs")]
    assert wrong.told[0].paths[0].startswith("t: xxx")
