"""The relational store's lines of the contract for the layout tables: a schema of games."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from migrator import tables
from migrator.model.move import At
from migrator.model.value import Int64, Record, Value
from migrator.ports import Store
from migrator.testing.contract import ContractCase, FixedSchema
from tests.contract import meters

_COLUMNS: Mapping[str, Mapping[str, str]] = {
    "sqlite": {"best": "REAL", "price": "DECIMAL TEXT", "day": "DATE TEXT", "raw": "BLOB"},
    "postgresql": {"best": "double precision", "price": "numeric", "day": "date", "raw": "bytea"},
    "mariadb": {"best": "double", "price": "decimal(30,2)", "day": "date", "raw": "longblob"},
}
# Every row of a text column is compared by its bytes; MariaDB's default takes a and A for one.
_KEY = {"mariadb": "varchar(200) COLLATE utf8mb4_bin"}


def _at(system: str) -> Callable[[str, Sequence[str]], At]:
    def at(name: str, rules: Sequence[str]) -> At:
        rounds = tables(
            f"{name}_rounds",
            order_by="number",
            columns={"number": "integer", "moves": "varchar(200)", "comment": "text"},
        )
        columns = {
            "id": _KEY.get(system, "varchar(200)"),
            "firstPlayer": "varchar(100)",
            "note": "longtext" if system == "mariadb" else "text",
            "wide": "bigint",
            **_COLUMNS[system],
        }
        return At("store", tables(name, key="id", columns=columns, rounds=rounds), rules)

    return at


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
        "raw": b"\0\xff",
        "rounds": [
            {"number": n, "moves": f"e{n} d{n}", "comment": None if n % 2 else "good"}
            for n in range(rounds)
        ],
    }


def _odd() -> list[tuple[Value, Record]]:
    changes: list[Record] = [
        {"firstPlayer": ""},
        {"firstPlayer": None, "wide": None, "best": None, "price": None, "day": None, "raw": None},
        {"firstPlayer": "cafe\u0301 \U0001f600 \\0 'x' \"y\" %s", "note": "x" * 70_000},
        {"note": "null", "firstPlayer": " a "},
        {"wide": Int64(2**63 - 1), "best": 5e-324, "price": Decimal("0.00")},
        {"wide": Int64(-(2**63)), "best": 1.7976931348623157e308, "price": Decimal("-7.30")},
        {"wide": Int64(0), "best": 0.1, "day": dt.date(9999, 12, 31), "raw": b""},
        {"best": 1e22, "day": dt.date(1, 1, 1), "raw": bytes(range(256))},
        {"rounds": []},
        {"rounds": [{"number": -5, "moves": "", "comment": ""}]},
    ]
    return [(f"odd-{i}", {**game(f"odd-{i}", 2), **change}) for i, change in enumerate(changes)]


_KEYS = (
    "a",
    "A",
    "b",
    "1",
    "01",
    "ä",
    "café",
    "cafe",
    "\U0001f600",
    "x:y",
    "%",
    "$x",
    "a.b",
    "k" * 200,
)


def _break(patch: pytest.MonkeyPatch) -> None:
    from migrator.stores.sql import shape
    from migrator.stores.sql.columns import Codec

    make = shape.codec

    def broken(*args: object, **more: object) -> Codec:
        made = make(*args, **more)  # type: ignore[arg-type]
        read, write = made.decode, made.encode
        if made.name != "firstPlayer":
            return made

        def decode(raw: object) -> Value:
            value = read(raw) if read else raw
            return value.replace("KEPT", "kept") if isinstance(value, str) else value

        def encode(value: Value) -> object:
            return write(value.replace("kept", "KEPT") if isinstance(value, str) else value)

        return replace(made, decode=decode, encode=encode)

    patch.setattr(shape, "codec", broken)


def case(system: str, open_: Callable[[Path], Store]) -> ContractCase:
    """The line of one system."""
    return ContractCase(
        system,
        "tables",
        open=open_,
        at=_at(system),
        break_copier=_break,
        schema=FixedSchema(game, _odd(), _KEYS),
        module="sql",
        meter=meters.SQL,
        tables=2,
    )
