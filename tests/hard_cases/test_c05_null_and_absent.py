"""C05: absent, null, JSON's null and the text "null" are four things."""

from __future__ import annotations

from tests.hard_cases.bench import Bench, apply, plan, verify
from tests.system import kit


def test_null_and_absent_in_documents(bench: Bench) -> None:
    one, two = kit.fresh("c05"), kit.fresh("c05")
    bench.docs[one].insert_many([{"_id": 1, "a": None, "b": 1}, {"_id": 2, "b": 2}])
    shop = bench.shop((f"At('docs', {one!r})", f"At('docs', {two!r}, ['/Thing/*/*'], 'flat')"))
    apply(shop)
    assert bench.docs[two].find_one({"_id": 1}) == {"_id": 1, "a": None, "b": 1}
    assert bench.docs[two].find_one({"_id": 2}) == {"_id": 2, "b": 2}
    bench.docs[two].update_one({"_id": 1}, {"$unset": {"a": 1}})
    bench.docs[two].update_one({"_id": 2}, {"$set": {"a": None}})
    found = verify(shop)
    assert {told.key: told.paths for told in found.told} == {
        "Thing:1": ["a: None (null) / nothing"],
        "Thing:2": ["a: nothing / None (null)"],
    }


def test_nulls_of_a_json_column(bench: Bench) -> None:
    table, docs, back = kit.fresh("c05"), kit.fresh("c05"), kit.fresh("c05")
    bench.sql(
        "pg",
        f"CREATE TABLE {table} (id int PRIMARY KEY, j jsonb)",
        f"INSERT INTO {table} VALUES (1, NULL), (2, 'null'), (3, '\"null\"'), "
        "(4, '{\"j\": null}')",
    )
    middle = f"At('docs', {docs!r})"
    shop = bench.shop(
        (f"At('pg', tables({table!r}))", middle),
        (middle, f"At('pg', tables({back!r}, key='id', columns={{'id': 'int', 'j': 'jsonb'}}))"),
    )
    kit.carry(shop, "0001")
    held = {d["_id"]: d for d in bench.docs[docs].find({}, {"_migrator": 0})}
    assert held == {
        1: {"_id": 1, "id": 1},
        2: {"_id": 2, "id": 2, "j": None},
        3: {"_id": 3, "id": 3, "j": "null"},
        4: {"_id": 4, "id": 4, "j": {"j": None}},
    }
    apply(shop, plan(shop, "0002"))
    query = "SELECT id, j IS NULL, j::text FROM {} ORDER BY id"
    assert bench.sql("pg", query.format(back)) == bench.sql("pg", query.format(table))
