"""The proof of the way back, between embedded stores: what it looks at, and where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from migrator import commands
from migrator.engine.proof import prove
from migrator.errors import Refused
from migrator.model.block import Aggregate, Block
from migrator.model.value import Record, Set
from migrator.retry import Retry
from migrator.route import Route
from tests.engine.games import fill, game, make_project

SIDES = ("source", "target")


class Losing(Route):
    """A move whose way back loses the score."""

    @classmethod
    def of(cls, route: Route) -> Losing:
        return cls(**{field.name: getattr(route, field.name) for field in fields(Route)})

    def returned(self, block: Block, old: Aggregate | None, kept: Record | None = None) -> Block:
        back = super().returned(block, old, kept)
        entries = {
            path: {name: item for name, item in value.items() if name != "score"}
            if isinstance(value, dict) else value
            for path, value in back.entries.items()
        }  # fmt: skip
        return replace(back, entries=entries)


@pytest.fixture
def route(tmp_path: Path) -> Iterator[Route]:
    with commands.Project(make_project(tmp_path), "test") as project:
        (found,) = project.routes("0001")
        fill(found.source, ((str(n), game(n)) for n in range(1, 40)))
        found.target.create()
        blocks = found.source.page(found.source.split(1)[0], None, 100).blocks
        found.target.write([new for block in blocks for new in found.expected(block)])
        yield found


@pytest.mark.parametrize("to", SIDES)
def test_what_is_lost_on_the_way_back_is_found(route: Route, to: str) -> None:
    prove(route, to, Retry())
    with pytest.raises(Refused, match="the way back is not proven: Game:"):
        prove(Losing.of(route), to, Retry())


@pytest.mark.parametrize("to", SIDES)
def test_what_differs_or_is_gone_is_not_compared(route: Route, to: str) -> None:
    primary = route.source if to == "target" else route.target
    there = primary.sample(100).blocks
    primary.write([replace(block, expires=4_000_000_000_000) for block in there])
    prove(Losing.of(route), to, Retry())
    primary.drop()
    primary.create()
    prove(Losing.of(route), to, Retry())


@pytest.mark.parametrize("to", SIDES)
def test_what_the_rules_of_the_target_do_not_cut_is_passed_by(route: Route, to: str) -> None:
    fill(route.source, ((str(n), {**game(n), "rounds": Set(["q"])}) for n in range(1, 40)))
    prove(route, to, Retry())


@pytest.mark.parametrize("to", SIDES)
def test_the_primary_is_read_by_keys_alone(
    route: Route, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads through a collection has the applications wait for its server."""
    primary = route.source if to == "target" else route.target
    asked: list[str] = []
    for through in ("sample", "page", "split", "keys", "count", "statistics"):
        monkeypatch.setattr(primary, through, lambda *_: asked.append("through"), raising=False)
    prove(route, to, Retry())
    assert asked == []
