"""C65: one document with invalid UTF-8 is named, and the others arrive."""

from __future__ import annotations

import pytest
from bson import encode
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure

from tests.hard_cases.bench import Bench, apply, error, plan
from tests.system import kit


@pytest.mark.parametrize("oversize", ["refuse", "quarantine"])
def test_one_unreadable_document(bench: Bench, oversize: str) -> None:
    one, two = kit.fresh("c65"), kit.fresh("c65")
    bench.docs[one].insert_many([{"_id": n, "in": {"t": "a?A"}} for n in range(1000) if n != 7])
    raw = encode({"_id": 7, "in": {"t": "a?A"}}).replace(b"a?A", b"a\xdcA")
    try:
        bench.docs[one].insert_one(RawBSONDocument(raw))  # type: ignore[arg-type]
    except OperationFailure as refused:
        pytest.skip(f"this server stores no invalid UTF-8 (mongod does): {refused.code}")
    target = f"At('pg', {two!r}, layout='entries')"
    shop = bench.shop(kit.move("Thing", f"At('docs', {one!r})", target, oversize=oversize))
    made = plan(shop)
    if oversize == "refuse":
        found = error(made)
        assert (found.code, found.keys) == ("E101", ["Thing:7"])
        assert "in.t" in found.text
        return
    (verified,) = apply(shop, made, accept=True, keys=["Thing:7"])
    assert (verified.equal, verified.quarantined) == (999, 1)
