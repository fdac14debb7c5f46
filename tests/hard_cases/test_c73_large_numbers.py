"""C73: no number is compared by way of another kind; one off by one is found."""

from __future__ import annotations

from migrator.model.move import At
from migrator.model.value import Record, Value
from tests.hard_cases.bench import Bench, apply, verify
from tests.system import kit

NUMBERS: list[tuple[Value, Record]] = [
    ("a", {"id": "a", "n": 2**64 - 1}),
    ("b", {"id": "b", "n": 2**63 - 1}),
    ("c", {"id": "c", "n": 2**53 + 1}),
]


def test_one_off_by_one_is_found_among_large_numbers(bench: Bench) -> None:
    name = kit.fresh("c73")
    shop = bench.shop(("At('emb', 'c73')", f"At('docs', {name!r})"))
    bench.fill(shop, At("emb", "c73"), NUMBERS)
    (found,) = apply(shop)
    assert found.equal == 3
    bench.docs[name].update_one({"_id": "c"}, {"$set": {"n": float(2**53)}})
    bench.docs[name].update_one({"_id": "b"}, {"$set": {"n": float(2**63 - 1)}})
    bench.docs[name].update_one({"_id": "a"}, {"$set": {"n": "18446744073709551616"}})
    wrong = verify(shop)
    assert {told.key for told in wrong.told} == {"Thing:a", "Thing:b", "Thing:c"}
