"""C01: int32, int64 and double stay three things, there and back."""

from __future__ import annotations

from bson import CodecOptions, Int64
from bson.raw_bson import RawBSONDocument

from tests.hard_cases.bench import Bench, apply, plan, verify
from tests.system import kit


def test_kinds_of_numbers_come_back_and_are_compared(bench: Bench) -> None:
    one, two, three = kit.fresh("c01"), kit.fresh("c01"), kit.fresh("c01")
    ages = [1, Int64(2), 3.0, Int64(9007199254740993)]
    bench.docs[one].insert_many([{"_id": 1, "ages": ages}, {"_id": 2, "ages": [1.0]}])
    middle = f"At('pg', {two!r}, layout='entries')"
    shop = bench.shop((f"At('docs', {one!r})", middle), (middle, f"At('docs', {three!r})"))
    kit.carry(shop, "0001")
    apply(shop, plan(shop, "0002"))
    raw: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)
    given, came = (
        [d.raw for d in bench.docs.get_collection(name, raw).find().sort("_id")]
        for name in (one, three)
    )
    assert came == given

    bench.docs[three].update_one({"_id": 2}, {"$set": {"ages.0": 1}})
    found = verify(shop, "0002")
    assert [told.key for told in found.told] == ["Thing:2"]
    assert found.told[0].paths == ["ages[0]: 1.0 (double) / 1 (int32)"]
