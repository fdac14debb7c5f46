"""C15: a row never pushes out another one by a second unique key."""

from __future__ import annotations

import pytest

from migrator.errors import DoesNotFit
from tests.hard_cases.bench import Bench, apply, plan
from tests.system import kit


@pytest.mark.parametrize("store", ["pg", "maria", "lite"])
def test_a_second_unique_key_is_told_by_both_keys(bench: Bench, store: str) -> None:
    one, table = kit.fresh("c15"), kit.fresh("c15")
    bench.sql(
        store, f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY, email varchar(50) UNIQUE)"
    )
    emails = {1: "bob@x.test", 2: "al@x.test", 3: "bob@x.test"}
    bench.docs[one].insert_many([{"_id": n, "id": n, "email": e} for n, e in emails.items()])
    shop = bench.shop((f"At('docs', {one!r})", f"At({store!r}, tables({table!r}))"))
    made = plan(shop, page=2)
    for _ in range(2):  # a second try of the same run meets the same clash, and nothing is lost
        with pytest.raises(DoesNotFit) as refused:
            apply(shop, made)
        assert f"{table} 3 and 1 have the same email, which is unique" in refused.value.what
        assert (refused.value.key, refused.value.where) == (3, f"{store}:{table}  Thing:3")
        held = bench.sql(store, f"SELECT id, email FROM {table} ORDER BY id")
        assert list(map(tuple, held)) == [(1, "bob@x.test"), (2, "al@x.test")]
    bench.docs[one].update_one({"_id": 3}, {"$set": {"email": "ann@x.test"}})
    (found,) = apply(shop, made)  # mended, the run goes on from where it was
    assert found.equal == 3


@pytest.mark.parametrize("store", ["pg", "maria", "lite"])
def test_a_row_that_is_there_is_not_pushed_out(bench: Bench, store: str) -> None:
    """The clash is with a row that was in the target before, under another key."""
    one, table = kit.fresh("c15"), kit.fresh("c15")
    bench.sql(
        store,
        f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY, email varchar(50) UNIQUE)",
        f"INSERT INTO {table} VALUES (1, 'old@x.test'), (2, 'bob@x.test')",
    )
    emails = {1: "bob@x.test", 2: "al@x.test"}
    bench.docs[one].insert_many([{"_id": n, "id": n, "email": e} for n, e in emails.items()])
    shop = bench.shop((f"At('docs', {one!r})", f"At({store!r}, tables({table!r}))"))
    with pytest.raises(DoesNotFit) as refused:
        apply(shop, plan(shop, page=1))
    assert f"{table} 1 and 2 have the same email, which is unique" in refused.value.what
    held = bench.sql(store, f"SELECT id, email FROM {table} ORDER BY id")
    assert list(map(tuple, held)) == [(1, "old@x.test"), (2, "bob@x.test")]
