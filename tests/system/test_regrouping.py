"""Classes are split, put into buckets and together again, between real servers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from migrator import commands, item_collection
from migrator.model.canonical import encode, equal
from migrator.model.move import At
from migrator.model.value import Record, Value
from tests.engine.regrouping import days_of, game, reading, rounds_of, without_rounds
from tests.system import kit
from tests.system.kit import PLACES, Place, Shop

GAMES: dict[Value, Record] = {f"g{n}": game(n, n % 4) for n in range(9)}
READINGS: dict[Value, Record] = {f"r{n}": reading(n) for n in range(40)}
ROUNDS = 'back="game", place="number", key="{game}-{number}"'
DAYS = '"readings", by={"sensor": "sensor", "day": Day("at")}, order_by="at", keep="id"'
NAMED = {place.name: place for place in PLACES}
# There and back: each is a source and a target.
PAIRS = (("mongo-document", "dynamodb-collection"), ("cassandra-partition", "redis-keys"))


def at(place: Place, cls: str, name: str) -> At:
    """Where a class lies: in DynamoDB all of them share one table."""
    if place.layout == "item-collection":
        return At(place.store, name, [], item_collection(f"{cls.upper()}#{{id}}"))
    return place.at(f"{name}_{cls.lower()}")


def text(place: Place, cls: str, name: str) -> str:
    """The same in the words of a script."""
    where = at(place, cls, name)
    return f"At({where.store!r}, {where.collection!r}, layout={where.layout!r})"


@pytest.mark.parametrize(
    ("source", "target"), [(NAMED[one], NAMED[other]) for one, other in PAIRS], ids=str
)
def test_classes_are_regrouped_and_come_back(source: Place, target: Place, shop: Shop) -> None:
    old, away, back = kit.fresh("old"), kit.fresh("away"), kit.fresh("back")
    games, readings = text(source, "Game", old), text(source, "Reading", old)
    shop.script(f"""moves = [
    Move("Round", of="Game", source={games}, target={text(target, "Round", away)},
         evolve=[SplitOut("rounds", {ROUNDS})]),
    Move("Game", source={games}, target={text(target, "Game", away)}, evolve=[Drop("rounds")]),
    Move("Day", of="Reading", source={readings}, target={text(target, "Day", away)},
         evolve=[Bucket({DAYS})]),
]""")
    shop.script(f"""moves = [
    Move("Game", target={text(source, "Game", back)},
         evolve=[MergeIn("rounds", of="Round", {ROUNDS})]),
    Move("Reading", of="Day", target={text(source, "Reading", back)}, evolve=[SplitOut({DAYS})]),
]""")
    with shop.open() as project:
        for cls, held in (("Game", GAMES), ("Reading", READINGS)):
            place = at(source, cls, old)
            kit.fill(project.stores.get(source.store).collection(cls, place), held.items())
    carry(shop, "0001")
    rounds = {id: r for g, value in GAMES.items() for id, r in rounds_of(str(g), value).items()}
    assert_lies(shop, at(target, "Round", away), "Round", by_form(rounds))
    whole = {id: without_rounds(value) for id, value in GAMES.items()}
    assert_lies(shop, at(target, "Game", away), "Game", by_form(whole))
    assert_lies(shop, at(target, "Day", away), "Day", days_of(READINGS))
    carry(shop, "0002")
    assert_lies(shop, at(source, "Game", back), "Game", by_form(GAMES))
    assert_lies(shop, at(source, "Reading", back), "Reading", by_form(READINGS))


def carry(shop: Shop, revision: str) -> None:
    """Plan, apply, verify and finish; nothing stays of the source."""
    with shop.open() as project:
        plan = commands.plan(project, revision, full=True)
        assert [finding.text for finding in plan.errors] == []
        accept = [finding.code for finding in plan.to_accept]
        applied = commands.apply(project, plan, terms=commands.Terms(accept=accept))
        assert all(found.clean for found in applied.verified)
        sources = [route.source for route in project.routes(revision)]
        commands.finish(project, revision, keep_source=False)
        assert not any(source.exists() and source.count() for source in sources)


def by_form(aggregates: Mapping[Value, Record]) -> dict[bytes, Record]:
    return {encode(id): value for id, value in aggregates.items()}


def assert_lies(shop: Shop, where: At, cls: str, expected: Mapping[bytes, Record]) -> None:
    with shop.open() as project:
        found = kit.contents(project.stores.get(where.store).collection(cls, where))
    assert found.keys() == expected.keys()
    assert [id for form, (id, value) in found.items() if not equal(value, expected[form])] == []
