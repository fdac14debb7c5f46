"""One line for each layout of each store: what is held to the contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from migrator.model.block import Block
from migrator.model.move import At
from migrator.ports import Store, StoreSettings
from migrator.stores import cassandra, sql, sqlite
from migrator.testing.contract import ContractCase
from tests.contract import (
    cassandra_cases,
    cassandra_table,
    dynamodb_cases,
    meters,
    mongodb,
    redis_cases,
    servers,
    sql_tables,
)


def _at(name: str, rules: Sequence[str]) -> At:
    return At("store", name, rules)


def _embedded(folder: Path) -> Store:
    return sqlite.open_store(StoreSettings("store", "embedded:///contract.db", root=str(folder)))


def _sqlite(folder: Path) -> Store:
    return sql.open_store(StoreSettings("store", "sqlite:///contract.db", root=str(folder)))


def _postgresql(_: Path) -> Store:
    return sql.open_store(StoreSettings("store", servers.database("postgresql")))


def _mariadb(_: Path) -> Store:
    return sql.open_store(StoreSettings("store", servers.database("mariadb")))


def _cassandra(_: Path) -> Store:
    return cassandra.open_store(StoreSettings("store", servers.cassandra()))


def _break_embedded(patch: pytest.MonkeyPatch) -> None:
    from migrator.stores.sqlite import codec

    rows, decode = codec.rows, codec.decode

    def broken(block: Block) -> list[codec.Row]:
        return [
            (key, path, data.replace(b"kept", b"KEPT"), x) for key, path, data, x in rows(block)
        ]

    patch.setattr(codec, "rows", broken)
    patch.setattr(codec, "decode", lambda data: decode(data.replace(b"KEPT", b"kept")))


def _break_entries(patch: pytest.MonkeyPatch) -> None:
    from migrator.model import json_text as codec

    dump, load = codec.dump, codec.load

    def broken(value: object) -> tuple[str, str | None]:
        text, tags = dump(value)
        return text.replace("kept", "KEPT"), tags

    patch.setattr(codec, "dump", broken)
    patch.setattr(codec, "load", lambda text, tags: load(text.replace("KEPT", "kept"), tags))


def _entries(system: str, open_: Callable[[Path], Store]) -> ContractCase:
    return ContractCase(
        system, "entries", open_, _at, _break_entries, module="sql", meter=meters.SQL
    )


CASES = [
    ContractCase(
        "embedded",
        "entries",
        _embedded,
        _at,
        _break_embedded,
        module="sqlite",
        meter=meters.EMBEDDED,
    ),
    _entries("sqlite", _sqlite),
    _entries("postgresql", _postgresql),
    _entries("mariadb", _mariadb),
    sql_tables.case("sqlite", _sqlite),
    sql_tables.case("postgresql", _postgresql),
    sql_tables.case("mariadb", _mariadb),
    *mongodb.CASES,
    *dynamodb_cases.CASES,
    *redis_cases.CASES,
    *cassandra_cases.cases(_cassandra, _break_entries),
    cassandra_table.case("table", _cassandra),
    cassandra_table.case("query tables", _cassandra),
]
