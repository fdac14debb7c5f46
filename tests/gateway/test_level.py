"""Waiting until both sides hold the same of an aggregate, and nothing else of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.gateway import Behind, Gateway
from migrator.gateway.level import Before, before_write, is_level
from migrator.model.block import Address, Aggregate, cut
from migrator.model.value import Record
from migrator.ports import Collection
from tests.gateway.kit import LASTING, Owner, owned
from tests.gateway.test_rekeyed import BY_PLACE, game, make

TERMS = replace(LASTING, bound=0.3)
Held = Mapping[str, Record]
A, B, NOWHERE = game("a"), game("b"), {"id": "1"}
OTHER = {**game("a"), "id": "2"}


@pytest.fixture(params=[BY_PLACE, ""], ids=["by place", "keys stay"])
def owner(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Owner]:
    with owned(make(tmp_path, request.param)) as owner:
        yield owner


@pytest.fixture
def games(owner: Owner) -> Iterator[Gateway]:
    with Gateway.open(
        "Game", owner.config, "test", revision="0001", shape="source", terms=TERMS
    ) as games:
        yield games


def hold(side: Collection, held: Held, ended: str = "") -> None:
    side.delete([Address(key) for key in ("1", "a", "b")])
    rules = side.at.rules("Game")
    side.write([cut(Aggregate(k, v, 1 if k == ended else None), rules) for k, v in held.items()])


def level(owner: Owner, games: Gateway, source: Held, target: Held, *led: str, ended: str = "",
          side: str = "source") -> bool:  # fmt: skip
    hold(owner.route.source, source, ended)
    hold(owner.route.target, target, ended)
    sides = games._here.sides(games._here.follower.standing)
    return is_level(sides, "1", Before(side, led))


@pytest.mark.parametrize("owner", [""], indirect=True)
def test_where_keys_stay_the_mirror_holds_the_same_or_nothing_as_the_primary_does(
    owner: Owner, games: Gateway
) -> None:
    assert level(owner, games, {}, {})
    assert level(owner, games, {"1": A}, {"1": A})
    assert not level(owner, games, {"1": A}, {})
    assert not level(owner, games, {}, {"1": A})
    assert not level(owner, games, {"1": A}, {"1": B})
    assert level(owner, games, {"1": A}, {}, ended="1")
    assert level(owner, games, {}, {"1": A}, ended="1")


@pytest.mark.parametrize("owner", ["Convert('place', Integer)"], indirect=True)
def test_what_the_mirror_can_not_hold_is_not_held_by_it(owner: Owner, games: Gateway) -> None:
    assert level(owner, games, {"1": game("7")}, {"1": {**A, "place": 7}})
    assert not level(owner, games, {"1": A}, {"1": A})


@pytest.mark.parametrize("owner", [BY_PLACE], indirect=True)
def test_where_keys_change_nothing_of_it_is_left_where_it_led_before(
    owner: Owner, games: Gateway
) -> None:
    assert level(owner, games, {"1": A}, {"a": A})
    assert not level(owner, games, {"1": A}, {"a": game("a", 1)})
    assert not level(owner, games, {"1": A}, {})
    assert not level(owner, games, {"1": NOWHERE}, {})
    assert not level(owner, games, {"1": A}, {"a": A}, ended="a")
    assert level(owner, games, {"1": A}, {}, ended="1")
    # Where it led before.
    assert not level(owner, games, {"1": B}, {"a": A, "b": B}, "a")
    assert not level(owner, games, {}, {"a": A}, "a")
    assert level(owner, games, {"1": A}, {"a": A}, "a")
    assert level(owner, games, {"1": B}, {"b": B}, "a")
    # There another one lies by now, or it was another side that led there.
    assert level(owner, games, {"1": B}, {"a": OTHER, "b": B}, "a")
    assert level(owner, games, {}, {"a": OTHER}, "a")
    assert level(owner, games, {"1": B}, {"a": A, "b": B}, "a", side="target")


def test_each_call_that_waits_tells_that_the_mirror_lacks_what_it_wrote(
    owner: Owner, games: Gateway
) -> None:
    at, changed = owner.route.target, {**game("a", 1), "rounds": ["q4"]}
    for write in (
        lambda: games.put("1", game("a"), wait=True),
        lambda: games.update("1", {"n": 1}, wait=True),
        lambda: games.append("1", "rounds", "q4", wait=True),
    ):
        with pytest.raises(Behind, match="it is written"):
            write()
    assert games.get("1").value == changed  # type: ignore[union-attr]
    key = "a" if owner.route.changes_key else "1"
    hold(at, {key: changed})
    assert games.put("1", changed, wait=True) == games.get("1")
    with pytest.raises(Behind, match="it is written"):
        games.delete("1", wait=True)
    assert games.get("1") is None


@pytest.mark.parametrize("owner", [BY_PLACE], indirect=True)
def test_where_it_led_is_looked_up_before_a_write(owner: Owner, games: Gateway) -> None:
    games.put("1", A)
    assert before_write(games._here, "1") == Before("source", ["a"])
    assert before_write(games._here, "2") == Before("source", [])
