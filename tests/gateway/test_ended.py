"""Aggregates whose deadline has passed: there are none, whatever lies there still."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator import commands
from migrator.errors import Refused
from migrator.gateway import Conflict, Gateway
from migrator.model.block import Aggregate, cut
from migrator.ports import Collection
from tests.contract import servers
from tests.gateway.kit import opened
from tests.system import kit

PLACES = {
    "embedded": "At('old', {name!r}, {rules})",
    "sqlite": "At('old', {name!r}, {rules})",
    "mongodb": "At('old', {name!r}, {rules}, Layout('document', {{'expires': 'until'}}))",
    "dynamodb": "At('old', {name!r}, {rules}, item('id', expires='until'))",
    "items": "At('old', {name!r}, {rules}, item_collection('GAME#{{id}}', expires='until'))",
}


@pytest.fixture(params=PLACES)
def games(
    request: pytest.FixtureRequest, tmp_path: Path, database_url: servers.MakeDatabase
) -> Iterator[Gateway]:
    name = kit.fresh("ended")
    match request.param:
        case "mongodb":
            url = database_url("mongodb")
        case "dynamodb" | "items":
            url = servers.dynamodb()
        case kind:
            url = f"{kind}:///old-{'sql' if kind == 'sqlite' else 'docs'}.db"
    (tmp_path / "old-sql.db").touch()
    shop = kit.Shop(tmp_path, {"old": url, "new": "embedded:///new.db"})
    place = PLACES[request.param].format(name=name, rules=["/Game/*/rounds[*]", "/Game/*/*"])
    shop.script(f"move = Move('Game', source={place}, target=At('new', 'games'))")
    with commands.Project(shop.config, kit.ENV) as project:
        route = project.routes("0001")[0]
        route.source.create()
        _fill(route.source)
        with opened(shop.config) as games:
            yield games
        route.source.drop()


def _fill(collection: Collection) -> None:
    rules = collection.at.rules("Game")
    game = {"id": "1", "n": 1, "rounds": [{"m": 1}]}
    collection.write([cut(Aggregate(key, {**game, "id": key}, 1), rules) for key in "1234"])


def test_what_has_ended_is_none_to_all_calls(games: Gateway) -> None:
    assert games.get("1") is None
    assert games.get_entries("1", ["n", "rounds[0]"]) is None
    with pytest.raises(Refused, match="no such aggregate"):
        games.update("1", {"n": 2})
    with pytest.raises(Refused, match="no such aggregate"):
        games.append("1", "rounds", {"m": 2})
    with pytest.raises(Conflict, match="there is none"):
        games.put("1", {"id": "1"}, expected="5c3d")
    assert games.get("1") is None

    games.put("2", {"id": "2", "rounds": []}, expected=None)
    assert games.append("2", "rounds", {"m": 3}).value == {"id": "2", "rounds": [{"m": 3}]}
    games.delete("3", expected=None)
    games.put("4", {"id": "4", "n": 4})
    assert games.get_entries("4", ["n"]) == {"n": 4}
