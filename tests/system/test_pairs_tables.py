"""Relational tables to every other system and back, and to those of another relational one.

Their games have columns that are known before: one for each kind that the system has a type for,
with all odd values of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import pytest

from migrator import tables
from migrator.model.canonical import encode
from migrator.model.move import At, Tables
from migrator.model.value import Kind, Record, Value, kind_of
from migrator.ports import Collection, How, Store
from migrator.testing.contract.harness import is_held
from migrator.testing.values import ODD_VALUES, odd_keys
from tests.system import kit
from tests.system.kit import PLACES, Game, Odd, Place, Shop
from tests.system.matrix import PAIR, system
from tests.system.test_pairs import assert_told, planned

Tell = Callable[[str, object], None]
End = tuple[Store, Collection]

_TYPES: Mapping[str, Mapping[Kind, str]] = {
    "sqlite": {
        Kind.BOOLEAN: "BOOLEAN", Kind.INT32: "INTEGER", Kind.INT64: "BIGINT",
        Kind.INTEGER: "BIGNUM TEXT", Kind.DOUBLE: "REAL", Kind.DECIMAL: "DECIMAL TEXT",
        Kind.TEXT: "TEXT", Kind.BYTES: "BLOB", Kind.DATE: "DATE TEXT", Kind.TIME: "TIME TEXT",
        Kind.TIMESTAMP: "TIMESTAMPTZ TEXT", Kind.LOCAL_TIMESTAMP: "TIMESTAMP TEXT",
        Kind.INTERVAL: "SPAN TEXT", Kind.UUID: "UUID TEXT", Kind.LIST: "JSON TEXT",
        Kind.RECORD: "JSON TEXT",
    },
    "postgresql": {
        Kind.BOOLEAN: "boolean", Kind.INT32: "integer", Kind.INT64: "bigint",
        Kind.INTEGER: "jsonb", Kind.DOUBLE: "double precision", Kind.DECIMAL: "numeric",
        Kind.TEXT: "text", Kind.BYTES: "bytea", Kind.DATE: "date", Kind.TIME: "time",
        Kind.TIMESTAMP: "timestamptz", Kind.LOCAL_TIMESTAMP: "timestamp",
        Kind.INTERVAL: "interval", Kind.UUID: "uuid", Kind.LIST: "jsonb", Kind.RECORD: "jsonb",
    },
    "mariadb": {
        Kind.BOOLEAN: "boolean", Kind.INT32: "int", Kind.INT64: "bigint", Kind.DOUBLE: "double",
        Kind.DECIMAL: "decimal(65,2)", Kind.TEXT: "longtext", Kind.BYTES: "longblob",
        Kind.DATE: "date", Kind.TIME: "time(6)", Kind.TIMESTAMP: "timestamp(6)",
        Kind.LOCAL_TIMESTAMP: "datetime(6)", Kind.UUID: "uuid", Kind.LIST: "json",
        Kind.RECORD: "json",
    },
}  # fmt: skip
_KEYS = {"mariadb": "varchar(250) COLLATE utf8mb4_bin"}


@dataclass(frozen=True)
class Typed(Place):
    """A place with tables: a game is a row, and each of its rounds one in a table of theirs."""

    kinds: frozenset[Kind] = frozenset(Kind)

    @property
    def types(self) -> Mapping[Kind, str]:
        """The columns' types by kind."""
        known = _TYPES[self.server or "sqlite"]
        return {kind: type for kind, type in known.items() if kind in self.kinds}

    @property
    def rules(self) -> Sequence[str]:
        return kit.EAO

    def tables(self, name: str) -> Tables:
        columns = {field(kind): type for kind, type in self.types.items()}
        key = _KEYS.get(self.server or "", "varchar(250)")
        rounds = tables(f"{name}_r", order_by="n", columns={"n": "integer", **columns})
        return tables(name, key="id", columns={"id": key, **columns}, rounds=rounds)

    def at(self, collection: str, rules: Sequence[str] = ()) -> At:
        return At(self.store, self.tables(collection))

    def script(self, collection: str, rules: Sequence[str] = ()) -> str:
        return f"At({self.store!r}, {self.tables(collection)!r})"

    def __str__(self) -> str:
        return self.name


TABLES = tuple(
    Typed(f"tables-{name}", None if name == "sqlite" else name, "tables") for name in _TYPES
)


def pairs() -> Iterator[tuple[Typed, Place]]:
    """Tables and each other system, in one of its layouts, and the tables of two systems."""
    systems = [list(places) for _, places in groupby(PLACES, lambda place: system(place.name))]
    for number, places in enumerate(systems):
        yield TABLES[number % len(TABLES)], places[(number + 1) % len(places)]
    for number, one in enumerate(TABLES):
        other = TABLES[(number + 1) % len(TABLES)]
        both = frozenset(one.types.keys() & other.types.keys())
        yield replace(one, kinds=both), replace(other, kinds=both)


def field(kind: Kind) -> str:
    return "v_" + kind.value.replace(" ", "_")


def games(source: Typed, odd: Odd, keys_of: Sequence[End], ends: Sequence[End]) -> list[Game]:
    """Games of all odd values that these ends hold; a null stands where they don't, and after."""
    empty: Record = dict.fromkeys(map(field, source.types))

    def held(kind: Kind, value: Value) -> bool:
        game: Record = {"id": "a", **empty, field(kind): value, "rounds": []}
        return not odd.no_value(value) and all(
            kit.takes(end, "a", game)
            and (
                end.at.tables is not None
                or is_held(store.capabilities.at(end.at.layout), end, value)
            )
            for store, end in ends
        )

    columns = {k: [v if held(k, v) else None for v in ODD_VALUES[k]] for k in source.types}

    def row(number: int) -> Record:
        return {field(k): v[number] if number < len(v) else None for k, v in columns.items()}

    def game(key: Value, number: int) -> Game:
        rounds: list[Value] = [{"n": n, **row(number + n)} for n in range(number % 3)]
        return key, {"id": key, **row(number), "rounds": rounds}

    keys = [*keyed(empty, *keys_of), *(f"g{n}" for n in range(max(map(len, columns.values()))))]
    return [game(key, number) for number, key in enumerate(keys)]


def keyed(empty: Record, *ends: End) -> list[Value]:
    """Odd texts as keys, those that all these ends take and tell apart."""
    taken: set[tuple[int, bytes]] = set()
    keys: list[Value] = []
    for key in odd_keys(Kind.TEXT):
        forms = {(n, encode(end.same_key(key))) for n, (_, end) in enumerate(ends)}
        game: Record = {"id": key, **empty, "rounds": []}
        if not forms & taken and all(kit.takes(end, key, game) for _, end in ends):
            taken |= forms
            keys.append(key)
    return keys


def values(found: list[Game]) -> int:
    """How many values there are in the columns, nulls not counted."""
    return sum(x is not None for _, game in found for x in game.values()) - 2 * len(found)


def kinds(found: list[Game]) -> set[Kind]:
    return {kind_of(value) for _, game in found for value in game.values()}


def test_each_relational_system_has_its_turn() -> None:
    assert {str(place) for pair in pairs() for place in pair} >= set(map(str, TABLES))


@pytest.mark.parametrize(("source", "target"), list(pairs()), ids=str)
def test_tables_move_there_and_back(
    source: Typed, target: Place, shop: Shop, odd: Odd, record_property: Tell
) -> None:
    there, away, back = kit.fresh("there"), kit.fresh("away"), kit.fresh("back")
    mid = target.script(away, target.rules)
    shop.script(f"move = {kit.move('Game', source.script(there), mid)}")
    shop.script(f"move = {kit.move('Game', mid, source.script(back))}")
    with shop.open() as project:
        old, new = project.stores.get(source.store), project.stores.get(target.store)
        origin = old.collection("Game", source.at(there))
        middle = new.collection("Game", target.at(away, target.rules))
        ends = (old, origin), (new, middle)
        moved = games(source, odd, ends, ends)
        kit.fill(origin, moved)
        says = new.capabilities.at(middle.at.layout).kinds
        assert {k for k in source.types if says[k].how is not How.REFUSED} <= kinds(moved)
        more = games(source, odd, ends, ends[:1])
        refused = values(more) - values(moved)
        if refused:
            assert_told(project, origin, more, moved)
    for revision, way in zip(shop.revisions, ((source, target), (target, source)), strict=True):
        (found,) = kit.carry(shop, revision)
        assert found.equal == len(moved)
        how = planned(shop, revision)
        assert how.keys() <= {"native", "tagged"}
        left_out = refused if way == (source, target) else 0
        record_property(PAIR, [*map(str, way), how["native"], how["tagged"], left_out])
    with shop.open() as project:
        new, old = project.stores.get(target.store), project.stores.get(source.store)
        for collection in (
            new.collection("Game", target.at(away, target.rules)),
            old.collection("Game", source.at(back)),
        ):
            kit.assert_equal(kit.contents(collection), kit.by_key(moved))
