"""Cassandra's lines of the contract for the layout table: a row by its key, and query tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from uuid import UUID

import pytest

from migrator.model import value as v
from migrator.model.layouts import cassandra_table, projection
from migrator.model.move import At, Layout
from migrator.model.value import Int64, Record, Value
from migrator.ports import Store
from migrator.stores.cassandra.table_facts import LOCATED
from migrator.testing.contract import ContractCase, FixedSchema
from tests.contract import meters, servers

_COLUMNS: Mapping[str, str] = {
    "id": "text",
    "firstPlayer": "text",
    "note": "text",
    "wide": "bigint",
    "best": "double",
    "price": "decimal",
    "day": "date",
    "seen": "timestamp",
    "raw": "blob",
    "tags": "set<text>",
    "score": "map<text, int>",
    "board": "frozen<list<frozen<list<int>>>>",
    "rounds": "json",
}


def _keyed(name: str) -> Layout:
    return cassandra_table(key="id", columns=_COLUMNS)


def _queried(name: str) -> Layout:
    """By player and month, with a locator, and a projection that has another key."""
    return cassandra_table(
        key=["firstPlayer", "month"],
        clustering=["day desc", "id"],
        id="id",
        columns=_COLUMNS,
        derived={"month": "month of day"},
        projections=[projection(f"{name}_by_wide", key="wide", clustering="id")],
    )


def game(key: Value, rounds: int) -> Record:
    """A game that the schema holds."""
    return {
        "id": key,
        "firstPlayer": "ann",
        "note": None,
        "wide": Int64(2**53 + 1),
        "best": 0.5,
        "price": Decimal("12.10"),
        "day": dt.date(2024, 2, 29),
        "seen": dt.datetime(2024, 2, 29, 1, 2, 3, 456_000, tzinfo=dt.UTC),
        "raw": b"\0\xff",
        "tags": v.Set(["fast", "rated"]),
        "score": {"ann": rounds, "bob": 1},
        "board": [[1, 2], [], [3]],
        "rounds": [
            {"number": n, "moves": f"e{n} d{n}", "comment": None if n % 2 else "good"}
            for n in range(rounds)
        ],
    }


def _odd() -> list[tuple[Value, Record]]:
    changes: list[Record] = [
        {"note": ""},
        {"best": None, "price": None, "raw": None, "tags": None, "score": None, "board": None},
        {"firstPlayer": "cafe\u0301 \U0001f600 \\0 'x' \"y\" %s", "note": "x" * 70_000},
        {"note": "a\0b", "firstPlayer": " a "},
        {"wide": Int64(2**63 - 1), "best": 5e-324, "price": Decimal("0.00")},
        {"wide": Int64(-(2**63)), "best": 1.7976931348623157e308, "price": Decimal("-7E+30")},
        {"wide": Int64(0), "best": -0.0, "day": dt.date(9999, 12, 31), "raw": b""},
        {"best": 1e22, "day": dt.date(1, 1, 1), "raw": bytes(range(256))},
        {"price": Decimal("-0.0"), "best": 3, "note": UUID(int=7)},
        {"seen": v.Instant(253_402_300_800 * v.NANOS), "note": v.Ref("Player", "ann")},
        {"seen": v.Instant(1_700_000_000_123_456_789), "note": Decimal("NaN")},
        {"seen": dt.datetime(1, 1, 1), "note": v.Regex("^a", "i")},
        {"tags": v.Set(), "score": {}, "board": []},
        {"score": {"": -5, "a.b": 2**31 - 1}, "board": [[]]},
        {"rounds": []},
        {"rounds": [{"number": -5, "moves": "\ud800", "comment": ""}, v.Int64(3), [], None]},
        {"raw": v.ObjectId(b"\xff" * 12), "price": 12},
    ]
    games = [{**game(f"odd-{i}", 2), **change} for i, change in enumerate(changes)]
    for name in ("note", "best", "tags", "board", "rounds"):
        del games[0][name]
    return [(f"odd-{i}", each) for i, each in enumerate(games)]


_KEYS = ("a", "A", "b", "1", "01", "ä", "café", "cafe", "\U0001f600", "x:y", "%", "$x", "a.b",
         "\0", "k" * 200)  # fmt: skip


def _break(patch: pytest.MonkeyPatch) -> None:
    from migrator.stores.cassandra import columns

    text = columns.SCALARS["text"]

    def natural(value: Value) -> bytes | None:
        data = text.natural(value)
        return data.replace(b"kept", b"KEPT") if data is not None else None

    broken = replace(
        text,
        natural=natural,
        natural_of=lambda data: data.decode().replace("KEPT", "kept"),
    )
    patch.setitem(columns.SCALARS, "text", broken)


_APART = {
    "*exchange*": "its blocks lie in several partitions, and are not changed on condition: "
    "test_cassandra_table_exchange.py"
}


def case(name: str, open_: Callable[[Path], Store]) -> ContractCase:
    """The line of one way to lay out the same games."""
    layouts = {"table": _keyed, "query tables": _queried}

    def at(collection: str, rules: Sequence[str]) -> At:
        return At("store", collection, rules, layouts[name](collection))

    return ContractCase(
        "cassandra" if name == "table" else f"cassandra, {name}",
        "table",
        open=open_,
        at=at,
        break_copier=_break,
        schema=FixedSchema(game, _odd(), _KEYS),
        module="cassandra",
        exclusions={}
        if name == "table"
        else {**servers.tried_on("a table with one key"), **_APART},
        empty=servers.empty_cassandra,
        meter=meters.CASSANDRA,
        has=frozenset({LOCATED} if name == "query tables" else ()),
    )
