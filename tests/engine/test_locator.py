"""The locator beside a live move whose keys change, on every store that may be its target."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from migrator.engine.locator import Locator
from migrator.model.canonical import encode
from migrator.model.move import At, Move
from migrator.model.value import Value
from migrator.retry import Retry
from migrator.route import Route
from migrator.testing.contract import ContractCase
from tests.contract.cases import CASES

# One for each store: the locator lies in its default layout. Cassandra is no side of such a move.
STORES = {case.name: case for case in reversed(CASES) if case.module != "cassandra"}
KEYS: list[Value] = ["1", 1, Decimal("1"), b"\xff", ["a", 7], "k" * 3000]


@pytest.mark.parametrize("case", STORES.values(), ids=list(STORES))
def test_keys_of_either_side_are_found_from_the_other(case: ContractCase, tmp_path: Path) -> None:
    store = case.open(tmp_path)
    move = Move("Game", target=At("store", "games"))
    route = SimpleNamespace(number=0, move=move, target_store=store)
    locator = Locator(cast("Route", route), str(tmp_path), Retry())
    locator.create()
    locator.create()
    try:
        there = {encode(key): (key, [n, f"{n}"]) for n, key in enumerate(KEYS)}
        back = {encode("1"): ("1", KEYS)}
        locator.put({"source": there, "target": back})

        assert locator.of("source", [*KEYS, "2"]) == [[n, f"{n}"] for n in range(len(KEYS))] + [[]]
        assert locator.of("target", ["1", 1]) == [KEYS, []]

        locator.put({"source": {encode("1"): ("1", [])}, "target": {encode("1"): ("1", [7])}})

        assert locator.of("source", ["1", 1]) == [[], [1, "1"]]
        assert locator.of("target", ["1"]) == [[7]]

        # More than a block of any store may hold; with one more, and with few again.
        collection = store.collection("Locator", locator.at)
        before = collection.count()
        many: list[Value] = [f"{n:05}" + "k" * 995 for n in range(200)]
        for keys in (many, [*many, "more"], many[1:3]):
            locator.of("source", ["2"])
            locator.put({"source": {encode("2"): ("2", keys)}})
            assert locator.of("source", ["2"]) == [keys]
        locator.put({"source": {encode("2"): ("2", [])}})
        assert locator.of("source", ["2"]) == [[]]
        assert collection.count() == before
    finally:
        locator.drop()
        locator.drop()
        store.close()
