"""Somebody who takes no part, and writes to the mirror right beside the mirror's own writes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from migrator import commands
from migrator.model.phase import Phase
from tests.contract import servers as contract
from tests.system import kit
from tests.system.application import Documents, Side, Tables, mirroring
from tests.system.kit import Shop, Urls
from tests.system.test_live_feeds import SqlTables, on_mariadb, on_sqlite

# A feed of the mirror that counts writes, and three that do not.
PAIRS = [
    ("postgresql", "mongodb"), ("mongodb", "postgresql"),
    ("mongodb", "mariadb"), ("mongodb", "sqlite"),
]  # fmt: skip
KEYS = {f"old-{1000 + n}": n for n in range(5)}


@dataclass
class Move:
    """A live move of games, and both its sides."""

    shop: Shop
    primary: Side
    mirror: Side

    def begin(self) -> None:
        with self.shop.open() as project:
            plan = commands.plan(project, "0001", live=True)
            assert plan.errors == []
            terms = commands.Terms(accept=[finding.code for finding in plan.findings])
            commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)

    def holds(self, key: str, number: int) -> bool:
        """Whether the mirror holds a game of this number."""
        held = self.mirror.held().get(key)
        return held is not None and held[0] == number


def _tables(kind: str, url: str, name: str, here: Path) -> Tables | SqlTables:
    if kind == "postgresql":
        return Tables(url, name)
    return on_mariadb(url, name) if kind == "mariadb" else on_sqlite(here / "sql.db", name)


@pytest.fixture(params=PAIRS, ids="-".join)
def move(request: pytest.FixtureRequest, tmp_path: Path, urls: Urls) -> Iterator[Move]:
    source, target = request.param
    kind, name = (source if target == "mongodb" else target), kit.fresh("live")
    sql = "sqlite:///sql.db" if kind == "sqlite" else urls(kind, "")
    docs = urls("mongodb", "")
    tables, documents = _tables(kind, sql, name, tmp_path), Documents(docs, name)
    tables.make()
    sides: dict[str, Side] = {kind: tables, "mongodb": documents}
    for key, number in KEYS.items():
        sides[source].put(key, number, ["a"])
    at = {
        kind: f"At('sql', tables('{name}', rounds=tables('{name}_round', order_by='pos')))",
        "mongodb": f"At('docs', '{name}')",
    }
    shop = Shop(tmp_path, {"sql": sql, "docs": docs})
    shop.script(f"move = Move('Game', source={at[source]}, target={at[target]})")
    yield Move(shop, sides[source], sides[target])
    with shop.open() as project:
        commands.abort(project, "0001", drop_target=True)
    tables.close()
    documents.close()


def test_writes_right_beside_the_mirrors_own_are_told_with_their_values_and_undone(
    move: Move,
) -> None:
    move.begin()
    with mirroring(move.shop), move.shop.open() as project:
        for key, n in KEYS.items():
            move.primary.put(key, 100 + n, ["b"])
            until(lambda key=key, n=n: move.holds(key, 100 + n))
            move.mirror.put(key, 1_000 + n, [])  # right after
        until(lambda: told(project) == {(key, 1_000 + n) for key, n in KEYS.items()})
        until(lambda: all(move.holds(key, 100 + n) for key, n in KEYS.items()))
        for key, n in KEYS.items():
            move.mirror.put(key, 2_000 + n, [])
            move.primary.put(key, 200 + n, ["c"])  # so that it is right before
        until(lambda: all(move.holds(key, 200 + n) for key, n in KEYS.items()))
        before = {(key, 2_000 + n) for key, n in KEYS.items()}
        until(lambda: told(project) >= before)
        (found,) = commands.verify_run(project, "0001")
    assert found.clean, found.told


def told(project: commands.Project) -> set[tuple[str, int]]:
    """The keys of foreign writes that the record tells, and the numbers that they put there."""
    found: set[tuple[str, int]] = set()
    for event in commands.events(project, "0001"):
        detail = event["detail"]
        if event["event"] == "foreign write" and isinstance(detail, dict):
            key = str(detail["key"]).partition(":")[2]
            (number,) = [path for path in detail["paths"] if path.startswith("n: ")]
            found.add((key, int(number.split(" ")[1])))
    return found


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.005)


_SERVED: dict[str, Callable[[], str]] = {
    "redis": contract.redis, "dynamodb": contract.dynamodb, "cassandra": contract.cassandra,
}  # fmt: skip


@pytest.mark.parametrize("store", list(_SERVED))
def test_a_write_to_the_mirror_is_told_and_undone_or_found(tmp_path: Path, store: str) -> None:
    """Cassandra shows nobody's writes: there a comparison finds it."""
    name = kit.fresh("stranger")
    shop = Shop(tmp_path, {"old": "embedded:///old.db", "new": _SERVED[store]()})
    layout = ", layout='partition'" if store == "cassandra" else ""
    shop.script("move = " + kit.move("Game", "At('old', 'games')", f"At('new', {name!r}{layout})"))
    with shop.open() as project:
        (route,) = project.routes("0001")
        kit.fill(route.source, [("a", {"id": "a", "n": 1}), ("b", {"id": "b", "n": 1})])
        plan = commands.plan(project, "0001", live=True)
        terms = commands.Terms(accept=[finding.code for finding in plan.findings])
        commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)
        before = kit.contents(route.target)
        with mirroring(shop):
            kit.fill(route.target, [("a", {"id": "a", "n": 77})])
            if store == "cassandra":
                (found,) = commands.verify_run(project, "0001")
                assert [(each.key, each.what) for each in found.told] == [("Game:a", "differs")]
                commands.verify_run(project, "0001", mend=True)
            else:
                until(lambda: told(project) == {("a", 77)})
            until(lambda: kit.contents(route.target) == before)
        kit.end(project)
