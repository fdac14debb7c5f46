"""Shadow reads between embedded stores: what is equal, what lags, what differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from migrator import commands
from migrator.engine.shadow import LOOKS, Shadow, Shadowed
from migrator.errors import Interrupted, Terminal, Transient
from migrator.model.block import Address, Aggregate, Block, cut
from migrator.model.value import Value
from migrator.route import Route
from migrator.state import quarantine_key
from tests.engine.games import game, make_project

GAMES = 12


class Sides:
    """Both sides of a move of games; the test is the mirror."""

    def __init__(self, route: Route) -> None:
        self.route = route

    def put(self, number: int, rounds: int = 3) -> None:
        """Write a game to the source."""
        made = Aggregate(str(number), game(number, rounds))
        self.route.source.write([cut(made, self.route.translation.source)])

    def mirror(self) -> None:
        """Have the target hold what the source does."""
        self.route.target.write(
            [new for block in self.blocks() for new in self.route.expected(block)]
        )

    def blocks(self) -> list[Block]:
        ids: list[Value] = [str(n) for n in range(1, GAMES + 1)]
        return [block for block in self.route.source.read(ids) if block is not None]

    def shadow(self, settle: Callable[[], None] = lambda: None, **more: object) -> Shadowed:
        shadow = Shadow(self.route, "source", settle, **more)  # type: ignore[arg-type]
        return shadow.look_at([*(str(n) for n in range(1, GAMES + 1)), "1", "2"])


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[Sides]:
    config = make_project(tmp_path)
    script = tmp_path / "migrations" / "0001_rounds.py"
    script.write_text(script.read_text().replace("oversize=", 'sensitive=["score"], oversize='))
    with commands.Project(config, "test") as project:
        (route,) = project.routes("0001")
        route.source.create()
        route.target.create()
        found = Sides(route)
        for number in range(1, GAMES + 1):
            found.put(number)
        found.mirror()
        yield found


def counts(found: Shadowed) -> dict[str, int]:
    """What is not zero."""
    every = {name: getattr(found, name) for name in found.__struct_fields__}
    return {name: n for name, n in every.items() if type(n) is int and n}


def test_equal_sides(sides: Sides) -> None:
    found = sides.shadow()
    assert counts(found) == {"keys": GAMES, "equal": GAMES}  # each key once
    assert found.clean
    for latency in (found.primary_latency, found.mirror_latency):
        assert latency.median is not None
        assert latency.p99 is not None
        assert 0 < latency.median <= latency.p99


def test_keys_are_sampled_from_all_over_the_primary(sides: Sides) -> None:
    found = Shadow(sides.route, "source", lambda: None).look(5)
    assert counts(found) == {"keys": 5, "equal": 5}
    back = Shadow(sides.route, "target", lambda: None).look(GAMES)
    assert counts(back) == {"keys": GAMES, "equal": GAMES}
    assert (back.primary, back.mirror) == (found.mirror, found.primary)


def test_what_is_absent_on_both_sides_is_equal(sides: Sides) -> None:
    found = Shadow(sides.route, "source", lambda: None).look_at(["none", "1"])
    assert counts(found) == {"keys": 2, "equal": 2, "absent": 1}


def test_what_is_equal_once_it_settled_lags(sides: Sides) -> None:
    sides.put(3, rounds=5)
    found = sides.shadow(sides.mirror)
    assert counts(found) == {"keys": GAMES, "equal": GAMES - 1, "lagging": 1}
    assert found.clean


def test_what_differs_is_told_with_its_paths(sides: Sides) -> None:
    sides.put(3, rounds=5)
    changed = Aggregate("4", {**game(4), "score": 7, "firstPlayer": "bob"})
    sides.route.target.write([cut(changed, sides.route.representation)])
    found = sides.shadow()
    assert counts(found) == {"keys": GAMES, "equal": GAMES - 2, "mismatch": 2}
    assert not found.clean
    told = {item.key: item for item in found.told}
    assert [path.partition(":")[0] for path in told["Game:3"].paths] == ["rounds[3]", "rounds[4]"]
    paths = " ".join(told["Game:4"].paths)
    assert "bob" in paths
    assert "score" in paths
    assert "7" not in paths  # it is sensitive


def test_what_one_side_lacks(sides: Sides) -> None:
    target = sides.route.target
    first, second = (new for block in sides.blocks()[:2] for new in sides.route.expected(block))
    target.delete([Address(first.id)])
    sides.route.source.delete([Address(second.id)])
    found = sides.shadow()
    assert counts(found) == {"keys": GAMES, "equal": GAMES - 2, "mismatch": 2}
    assert {item.what for item in found.told} == {"missing", "extra"}


def test_a_key_that_is_written_all_the_while_is_no_mismatch(sides: Sides) -> None:
    rounds = 3

    def settle() -> None:
        nonlocal rounds
        rounds += 1
        sides.put(3, rounds)

    sides.put(3, rounds=1)
    found = sides.shadow(settle)
    assert counts(found) == {"keys": GAMES, "equal": GAMES - 1, "moving": 1}
    assert rounds == 3 + LOOKS


def test_a_marker_that_fails_for_now_is_written_again(sides: Sides) -> None:
    failures = 2

    def settle() -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise Transient("not now")
        sides.mirror()

    sides.put(3, rounds=5)
    assert counts(sides.shadow(settle)) == {"keys": GAMES, "equal": GAMES - 1, "lagging": 1}


def test_what_can_not_be_read_is_never_equal(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    shadow = Shadow(sides.route, "source", lambda: None)

    def fail(keys: object) -> list[Block | None]:
        raise Terminal("it is broken")

    monkeypatch.setattr(shadow.mirror.observer, "read", fail)
    found = shadow.look_at(["1", "2"])
    assert counts(found) == {"keys": 2, "errors": 2}
    assert found.told[0].paths == ["new:games_by_round: it is broken"]
    assert (found.primary_latency.median or 0) > 0
    assert found.mirror_latency.median is None
    monkeypatch.setattr(shadow.primary.observer, "read", fail)
    found = shadow.look_at(["1", "2"])
    assert counts(found) == {"keys": 2, "errors": 2}
    assert found.told[0].what == "error"
    assert found.told[0].paths == ["old:games: it is broken; new:games_by_round: it is broken"]
    assert not found.clean


def test_what_can_not_be_read_of_a_sample_is_an_error(sides: Sides) -> None:
    with sides.route.source.store.writing() as connection:  # type: ignore[attr-defined]
        connection.execute("UPDATE entries_1 SET value = x'c1' WHERE block IN ('2', '3')")
    aside = frozenset({quarantine_key("3")})
    found = Shadow(sides.route, "source", lambda: None, aside=aside).look(GAMES)
    assert counts(found) == {"keys": GAMES, "equal": GAMES - 2, "errors": 1, "quarantined": 1}
    (told,) = found.told
    assert (told.key, told.what) == ("Game:2", "error")
    assert told.paths[0].startswith("old:games: can't be read: ")


def test_keys_in_quarantine_are_not_compared(sides: Sides) -> None:
    sides.put(3, rounds=5)
    found = sides.shadow(aside=frozenset({quarantine_key("3")}))
    assert counts(found) == {"keys": GAMES, "equal": GAMES - 1, "quarantined": 1}


def test_a_key_in_quarantine_is_that_of_the_source_where_keys_change(tmp_path: Path) -> None:
    config = make_project(tmp_path)
    script = tmp_path / "migrations" / "0001_rounds.py"
    text = script.read_text().replace("import At, Move", "import At, ChangeId, Move")
    script.write_text(text.replace("oversize=", 'evolve=[ChangeId("to", stays="id")], oversize='))
    with commands.Project(config, "test") as project:
        (route,) = project.routes("0001")
        route.source.create()
        route.target.create()
        old = cut(Aggregate("1", {"id": "1", "to": "2"}), route.translation.source)
        route.source.write([old])
        route.target.write(route.expected(old))
        aside = frozenset({quarantine_key("2")})
        found = Shadow(route, "target", lambda: None, aside=aside).look_at(["2"])
    assert counts(found) == {"keys": 1, "equal": 1}


def test_it_can_be_stopped(sides: Sides) -> None:
    def check() -> None:
        raise Interrupted("stopped")

    with pytest.raises(Interrupted):
        sides.shadow(check=check)
