"""C10: names of fields are kept as they are, dots, dollars and the empty one included."""

from __future__ import annotations

import pytest

from migrator.model.move import At
from migrator.model.value import Record
from tests.hard_cases.bench import Bench, apply, plan
from tests.system import kit

NAMES: Record = {
    "na!e": "Max", "na%e": "X", "userId": 1, "userid": 2, "a.b": 3, "a": {"b": 4}, "$x": 5,
    "": 6, "__dot__": 7,
}  # fmt: skip


@pytest.mark.parametrize(
    ("store", "layout"),
    [("docs", "document"), ("docs", "flat"), ("pg", "entries"), ("maria", "entries")],
)
@pytest.mark.parametrize("rules", [["/Thing/*"], ["/Thing/*/**"]], ids=["EAO", "EAV"])
def test_odd_names_come_back(bench: Bench, store: str, layout: str, rules: list[str]) -> None:
    name = kit.fresh("c10")
    middle = f"At({store!r}, {name!r}, {rules!r}, {layout!r})"
    shop = bench.shop(("At('emb', 'one')", middle), (middle, "At('emb', 'two')"))
    bench.fill(shop, At("emb", "one"), [("n", NAMES)])
    kit.carry(shop, "0001")
    apply(shop, plan(shop, "0002"))
    kit.assert_equal(bench.contents(shop, At("emb", "two")), kit.by_key([("n", NAMES)]))
