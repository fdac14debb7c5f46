"""Chinook and Northwind through tables: read as aggregates, written into an empty database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migrator import At, tables
from migrator.model.canonical import equal
from migrator.model.move import Tables
from migrator.ports import Collection
from tests.stores.sql_servers import Base, load_chinook, need

DIALECTS = ["sqlite", "postgresql", "mysql"]
_NAMES = {
    "postgresql": lambda words: "_".join(word.lower() for word in words),
    "sqlite": "".join,
    "mysql": "".join,
}


@pytest.fixture(scope="module", params=DIALECTS)
def chinook(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    base = Base(request.param, tmp_path_factory.mktemp("chinook"))
    load_chinook(base)
    yield base
    base.drop()


@pytest.fixture
def empty(chinook: Base, tmp_path: Path) -> Iterator[Base]:
    base = Base(chinook.dialect, tmp_path)
    yield base
    base.drop()


def shapes(dialect: str) -> dict[str, Tables]:
    name = _NAMES[dialect]

    def table(*words: str, **options: Any) -> Tables:
        return tables(name(words), **options)

    return {
        "Genre": table("Genre"),
        "MediaType": table("Media", "Type"),
        "Employee": table("Employee"),
        "Artist": table(
            "Artist", children={"albums": table("Album", children={"tracks": table("Track")})}
        ),
        "Customer": table(
            "Customer",
            children={
                "invoices": table("Invoice", children={"lines": table("Invoice", "Line")}),
            },
        ),
        "Playlist": table(
            "Playlist",
            children={
                "tracks": table(
                    "Playlist",
                    "Track",
                    value=name(("Track", "Id" if dialect != "postgresql" else "id")),
                )
            },
        ),
    }


def blocks(collection: Collection) -> list[Any]:
    found: list[Any] = []
    for range_ in collection.split(3):
        position = None
        while True:
            page = collection.page(range_, position, 37)
            found += page.blocks
            position = page.next
            if position is None:
                break
    return found


def with_like(spec: Tables) -> Tables:
    from dataclasses import replace

    return replace(spec, like="shop")


def copy(source: Base, target: Base, specs: dict[str, Tables]) -> None:
    shop, copied = source.store("shop"), target.store("copy", {"shop": source})
    pairs = []
    for cls, spec in specs.items():
        here = shop.collection(cls, At("shop", spec))
        there = copied.collection(cls, At("copy", with_like(spec)))
        there.create()
        there.create()  # what is there is left as it is
        pairs.append((here, there))
    for here, there in pairs:
        read = blocks(here)
        assert len(read) == here.count()
        for start in range(0, len(read), 50):
            there.write(read[start : start + 50])
        there.settle()
        again = blocks(there)
        assert len(again) == len(read)
        assert all(equal(a.entries, b.entries) for a, b in zip(read, again, strict=True))
        seen = there.observer().read([block.id for block in read])
        assert all(b and equal(a.entries, b.entries) for a, b in zip(read, seen, strict=True))


def table_names(base: Base) -> list[str]:
    query = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'",
        "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
        "mysql": "SELECT table_name FROM information_schema.tables "
        f"WHERE table_schema = '{base.name}'",
    }[base.dialect]
    return sorted(row[0] for row in base.rows(query))


def schema(base: Base) -> list[list[tuple[Any, ...]]]:
    """What the server itself says of types, keys, indexes and counters."""
    if base.dialect == "sqlite":
        return [
            base.rows(
                "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%' ORDER BY 1"
            )
        ]
    where = "public" if base.dialect == "postgresql" else base.name
    queries = [
        "SELECT table_name, column_name, ordinal_position, column_default, is_nullable, data_type, "
        "character_maximum_length, numeric_precision, numeric_scale, datetime_precision, "
        "collation_name FROM information_schema.columns WHERE table_schema = '{}' ORDER BY 1, 2",
        "SELECT table_name, constraint_name, constraint_type "
        "FROM information_schema.table_constraints WHERE table_schema = '{}' "
        "AND constraint_name NOT LIKE '%%_not_null' ORDER BY 1, 2",
        "SELECT table_name, constraint_name, column_name, ordinal_position "
        "FROM information_schema.key_column_usage WHERE table_schema = '{}' ORDER BY 1, 2, 3",
        "SELECT constraint_name, unique_constraint_name, update_rule, delete_rule "
        "FROM information_schema.referential_constraints WHERE constraint_schema = '{}' ORDER BY 1",
    ]
    if base.dialect == "postgresql":
        queries.append(
            "SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = '{}' ORDER BY 2"
        )
        queries.append(
            "SELECT sequencename, data_type, start_value, increment_by, last_value "
            "FROM pg_sequences WHERE schemaname = '{}' ORDER BY 1"
        )
    else:
        queries.append(
            "SELECT table_name, index_name, column_name, non_unique, seq_in_index "
            "FROM information_schema.statistics WHERE table_schema = '{}' ORDER BY 1, 2, 5"
        )
        queries.append(
            "SELECT table_name, auto_increment, engine, table_collation "
            "FROM information_schema.tables WHERE table_schema = '{}' ORDER BY 1"
        )
    return [base.rows(query.format(where).replace("%%", "%")) for query in queries]


def rows(base: Base, table: str) -> list[str]:
    mark = "`" if base.dialect == "mysql" else '"'
    return sorted(map(repr, base.rows(f"SELECT * FROM {mark}{table}{mark}")))


def test_chinook_comes_back_whole_with_its_schema(chinook: Base, empty: Base) -> None:
    specs = shapes(chinook.dialect)
    copy(chinook, empty, specs)
    assert table_names(empty) == table_names(chinook)
    for table in table_names(chinook):
        assert rows(empty, table) == rows(chinook, table)
    for left, right in zip(schema(empty), schema(chinook), strict=True):
        assert left == right
    if chinook.dialect == "sqlite":
        assert empty.rows("PRAGMA foreign_key_check") == []


def test_an_artist_holds_albums_and_tracks(chinook: Base) -> None:
    spec = shapes(chinook.dialect)["Artist"]
    (block,) = chinook.store().collection("Artist", At("shop", spec)).read([1])
    assert block is not None
    artist: Any = block.entries[""]
    assert list(artist) == [*[c for c in artist if c != "albums"], "albums"]
    assert [len(album["tracks"]) for album in artist["albums"]] == [10, 8]
    link = "artist_id" if chinook.dialect == "postgresql" else "ArtistId"
    assert all(link not in album for album in artist["albums"])


def test_northwind_with_blanks_in_names(tmp_path: Path) -> None:
    source, target = Base("sqlite", tmp_path), Base("sqlite", tmp_path)
    source.run(need("northwind.sqlite.sql").read_text())
    specs = {
        "Order": tables("Orders", children={"Order Details": tables("Order Details")}),
        "Product": tables("Products"),
        "Customer": tables("Customers"),
    }
    copy(source, target, specs)
    for table in ("Orders", "Order Details", "Products", "Customers"):
        assert rows(target, table) == rows(source, table)
    source.drop()
    target.drop()
