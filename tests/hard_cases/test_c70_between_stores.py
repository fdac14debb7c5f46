"""C70: verification and the way back apply the very mapping of the copy."""

from __future__ import annotations

from tests.hard_cases.bench import Bench, apply, verify
from tests.system import kit


def test_keys_and_shapes_that_were_mapped_are_equal(bench: Bench) -> None:
    one, two = kit.fresh("c70"), kit.fresh("c70")
    bench.docs[one].insert_many(
        [{"_id": n, "login": f"prod:user:{n}", "score": str(n)} for n in range(50)]
    )
    shop = bench.shop(
        f"Move('Thing', source=At('docs', {one!r}), target=At('pg', {two!r}, layout='entries'), "
        "evolve=[ChangeId('login', keep='oldId'), Convert('score', Integer), "
        "Rename('score', 'points')])"
    )
    (found,) = apply(shop)
    assert (found.equal, found.clean) == (50, True)
    bench.docs[one].update_one({"_id": 7}, {"$set": {"score": "8"}})
    wrong = verify(shop)
    assert (wrong.differ, wrong.missing, wrong.extra) == (1, 0, 0)
    assert wrong.told[0].paths == ["points: 8 (int32) / 7 (int32)"]
    bench.docs[one].update_one({"_id": 7}, {"$set": {"score": "7", "login": "prod:user:x"}})
    wrong = verify(shop)
    assert {(told.key, told.what) for told in wrong.told} == {
        ("Thing:7", "missing"),
        ("Thing:prod:user:7", "extra"),
    }
