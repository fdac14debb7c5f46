"""Every system to every other, and back: equal in canonical form, with deadlines. Each layout has
its turn.

Relational tables have theirs in test_pairs_tables.py: they take no game whose fields nobody knows
before.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations_with_replacement, groupby

import pytest

from migrator import commands
from migrator.model.block import Address
from migrator.model.value import Value
from migrator.ports import Collection
from tests.system import kit
from tests.system.kit import PLACES, Game, Odd, Place, Shop
from tests.system.matrix import PAIR, system

Record = Callable[[str, object], None]
END = int(dt.datetime(2035, 1, 1, tzinfo=dt.UTC).timestamp()) * 1000


def pairs() -> Iterator[tuple[Place, Place]]:
    """All pairs of systems, there and back, so that two in one order try both ways.

    Which of a system's layouts takes part goes round; within one system it is two of them.
    """
    systems = [list(places) for _, places in groupby(PLACES, lambda place: system(place.name))]
    for (i, one), (j, other) in combinations_with_replacement(enumerate(systems), 2):
        yield one[j % len(one)], other[(i + (i == j)) % len(other)]


def test_each_layout_has_its_turn() -> None:
    assert {place for pair in pairs() for place in pair} == set(PLACES)


@pytest.mark.parametrize(("source", "target"), list(pairs()), ids=str)
def test_a_class_moves_there_and_back(
    source: Place, target: Place, shop: Shop, odd: Odd, record_property: Record
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
        held = odd.held_by(*ends)
        games = held.games() + held.keyed(*ends)
        kit.fill(origin, games, deadline)
        refused = odd.held_by(ends[0]).values() - held.values()
        if refused:
            assert_told(project, origin, odd.held_by(ends[0]).games(), games)
    expected = kit.by_key(games)
    for revision, way in zip(shop.revisions, ((source, target), (target, source)), strict=True):
        (found,) = kit.carry(shop, revision)
        assert found.equal == len(games)
        how = planned(shop, revision)
        assert how.keys() <= {"native", "tagged"}
        left_out = refused if way == (source, target) else 0
        record_property(PAIR, [*map(str, way), how["native"], how["tagged"], left_out])
    with shop.open() as project:
        middle = project.stores.get(target.store).collection("Game", target.at(away, target.rules))
        kit.assert_equal(kit.contents(middle), expected)
        final = project.stores.get(source.store).collection("Game", source.at(back))
        kit.assert_equal(kit.contents(final), expected)
        deadlines = {key: deadline(id) for key, (id, _) in expected.items()}
        assert set(deadlines.values()) == {None, END}
        assert kit.deadlines(middle) == kit.deadlines(final) == deadlines


def deadline(id: Value) -> int | None:
    """A deadline for some games, in milliseconds; DynamoDB counts in seconds."""
    return END if isinstance(id, str) and id.startswith("kind-") else None


def planned(shop: Shop, revision: str) -> Counter[str]:
    """How many values the plan said would be held natively, tagged or not at all."""
    with shop.open() as project:
        plan = commands.frozen_plan(project.control.runs(revision)[-1])
    how: Counter[str] = Counter()
    for kind in plan.moves[0].kinds:
        how[kind.how] += kind.count
    return how


def assert_told(
    project: commands.Project, origin: Collection, more: list[Game], games: list[Game]
) -> None:
    """With values that the target refuses, the plan names their games before anything moves."""
    rules = origin.at.rules("Game")
    known = kit.by_key(games)
    odder = kit.by_key(more)
    unfit = [
        key for key in odder if key not in known or not kit.equal(odder[key][1], known[key][1])
    ]
    written = {key: kit.block(*odder[key], rules) for key in unfit}
    origin.write([replace(each, expires=deadline(each.id)) for each in written.values()])
    errors = commands.plan(project, "0001", full=True).errors
    named = {name for finding in errors for name in finding.keys}
    assert named
    assert named <= {f"Game:{odder[key][0]}" for key in unfit}
    assert sum(finding.count for finding in errors) >= len(unfit)
    origin.delete([Address(odder[key][0]) for key in unfit if key not in known])
    written = {key: kit.block(*known[key], rules) for key in unfit if key in known}
    origin.write([replace(each, expires=deadline(each.id)) for each in written.values()])
