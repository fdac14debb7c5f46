"""C09: keys that the target takes for one are named by the plan; no row vanishes."""

from __future__ import annotations

import pytest

from tests.hard_cases.bench import Bench, apply, plan
from tests.system import kit

KEYS = ("google", "Google", "cafe", "café", "a ", "a")
TARGETS = {
    "maria": (
        "varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
        {"Google", "café", "a "},
    ),
    "lite": ("TEXT COLLATE NOCASE", {"Google"}),
}


@pytest.mark.parametrize("store", list(TARGETS))
def test_keys_that_the_target_folds_are_refused(bench: Bench, store: str) -> None:
    one, table = kit.fresh("c09"), kit.fresh("c09")
    type_, folded = TARGETS[store]
    bench.sql(store, f"CREATE TABLE {table} (id {type_} NOT NULL PRIMARY KEY)")
    bench.docs[one].insert_many([{"_id": key, "id": key} for key in KEYS])
    shop = bench.shop((f"At('docs', {one!r})", f"At({store!r}, tables({table!r}))"))
    found = [each for each in plan(shop).errors if each.code == "E108"]
    named = " ".join(key for each in found for key in [each.text, *each.keys])
    for key in folded:
        assert f"Thing:{key}" in named, found
    assert bench.sql(store, f"SELECT count(*) FROM {table}") == [(0,)]


def test_entries_keep_all_keys_apart(bench: Bench) -> None:
    one, two = kit.fresh("c09"), kit.fresh("c09")
    bench.docs[one].insert_many([{"_id": key, "id": key} for key in KEYS])
    shop = bench.shop((f"At('docs', {one!r})", f"At('maria', {two!r}, layout='entries')"))
    (found,) = apply(shop)
    assert found.equal == len(KEYS)
