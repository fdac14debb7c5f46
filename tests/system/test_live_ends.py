"""A live move that ends with one of its sides: that goes, with all that followed it there.

What followed a side is removed after the side itself, so it has to be removed without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from migrator import commands
from migrator.commands import SwapTerms, Terms
from migrator.engine import points
from migrator.journal import OTHER
from migrator.model.phase import Phase
from tests.contract import servers
from tests.system import kit
from tests.system.kit import Place, Shop, Urls

SWAP = SwapTerms(bound=60, lag=20, gateways=True)  # nobody writes


# The emulator that other tests use has no streams.
_PLACES = [replace(p, server="dynamodb") if p.server == "dynalite" else p for p in kit.PLACES]


@pytest.fixture(params=_PLACES, ids=str)
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.param
    return found


@pytest.fixture
def shop(place: Place, tmp_path: Path, urls: Urls) -> Shop:
    url = servers.dynamodb() if place.server == "dynamodb" else urls(place.server, place.store)
    return Shop(tmp_path, {place.store: url, "end": "embedded:///end.db"})


@pytest.fixture(params=["source", "target"])
def side(request: pytest.FixtureRequest) -> str:
    """Which side of the move the place is, and goes with the move's end."""
    return str(request.param)


@pytest.fixture
def project(place: Place, side: str, shop: Shop) -> Iterator[commands.Project]:
    name = kit.fresh("ends")
    at = [place.script(name, [] if place.whole else ["/Game/*"]), f"At('end', {name!r})"]
    shop.script(f"move = {kit.move('Game', *(at if side == 'source' else at[::-1]))}")
    with shop.open() as project:
        (route,) = project.routes("0001")
        kit.fill(route.source, [(n, {"key": n, "kind": "g", "n": i}) for i, n in enumerate("abc")])
        yield project
        kit.end(project)


class _Stopped(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("dies", [False, True], ids=["at once", "in two lives"])
def test_a_side_is_dropped_with_all_that_followed_it(
    shop: Shop, side: str, project: commands.Project, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    def end(project: commands.Project) -> Phase:
        if side == "source":
            return commands.finish(project, "0001", keep_source=False).phase
        return commands.abort(project, "0001", drop_target=True).phase

    plan = commands.plan(project, "0001", live=True)
    assert plan.errors == []
    terms = Terms(accept=[finding.code for finding in plan.findings], swap=SWAP)
    commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)
    commands.cutover(project, "0001", swap=SWAP)
    if side == "target":
        commands.rollback(project, "0001", swap=SWAP)
    if dies:

        def stops(point: str) -> None:
            if point in ("finish.dropped", "abort.dropped"):
                raise _Stopped

        monkeypatch.setattr(points, "hook", stops)
        with pytest.raises(_Stopped):
            end(project)
        monkeypatch.undo()
    with shop.open() as again:
        assert end(again).ended
        (route,) = again.routes("0001")
        assert not route.side(side).exists()
        assert route.side(OTHER[side]).count() == 3
