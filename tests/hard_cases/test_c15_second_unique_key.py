"""C15: a row never pushes out another one by a second unique key."""

from __future__ import annotations

import pytest

from migrator.errors import Failed
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
    with pytest.raises(Failed) as refused:
        apply(shop, plan(shop, page=2))
    told = str(refused.value)
    assert "email" in told or "unique" in told.lower()
    assert "3" in told
    assert "1" in told
    held = bench.sql(store, f"SELECT id, email FROM {table} ORDER BY id")
    assert list(map(tuple, held)) == [(1, "bob@x.test"), (2, "al@x.test")]
