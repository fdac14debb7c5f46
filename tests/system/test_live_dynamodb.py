"""The whole life of a live move under writers, from DynamoDB and to it: by the stream of its table.

On moto, whose streams are the only ones to be had. It takes no writes to a table whose stream was
turned off, so the writers have ended before a move is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migrator import commands
from migrator.gateway import Gateway
from migrator.model.phase import Phase
from migrator.stores.dynamodb.split import SplitCollection
from tests.contract import servers as own
from tests.contract.feeds_dynamodb import client
from tests.gateway import test_live as gateway
from tests.gateway.kit import QUICK, opened, until
from tests.gateway.writers import Writer
from tests.system import kit
from tests.system.application import Application, Held, Hooked, Rounds, Tables
from tests.system.kit import Shop, Urls
from tests.system.test_live import Game

_OLD = 60
_LONG = 120.0


class Items:
    """Games as items of DynamoDB, by boto3: an item each, the rounds a list."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.client = client()

    def put(self, key: str, number: int, rounds: Rounds) -> None:
        told = [_round(place, spell) for place, spell in enumerate(rounds)]
        game = {"id": {"S": key}, "n": {"N": str(number)}, "rounds": {"L": told}}
        self.client.put_item(TableName=self.name, Item=game)

    def append(self, key: str, place: int, spell: str) -> None:
        self.client.update_item(
            TableName=self.name,
            Key={"id": {"S": key}},
            UpdateExpression="SET rounds = list_append(rounds, :r)",
            ExpressionAttributeValues={":r": {"L": [_round(place, spell)]}},
        )

    def delete(self, key: str) -> None:
        self.client.delete_item(TableName=self.name, Key={"id": {"S": key}})

    def held(self) -> dict[str, Held]:
        found: dict[str, Held] = {}
        for page in self.client.get_paginator("scan").paginate(TableName=self.name):
            for game in page["Items"]:
                if (key := game["id"]["S"]).startswith("_migrator-mark-"):
                    continue
                spells = [each["M"]["spell"]["S"] for each in game["rounds"]["L"]]
                found[key] = int(game["n"]["N"]), spells
        return found

    def close(self) -> None:
        self.client.close()


def _round(place: int, spell: str) -> dict[str, Any]:
    return {"M": {"pos": {"N": str(place)}, "spell": {"S": spell}}}


@pytest.fixture
def game(tmp_path: Path, urls: Urls) -> Iterator[Game]:
    name = kit.fresh("live")
    items_url, sql = own.dynamodb(), urls("postgresql", "")
    items = Items(name)
    items.client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    for number in range(_OLD):
        items.put(f"old-{1000 + number}", number, ["a", "b"])
    tables = Tables(sql, name)
    tables.make()
    tables.close()
    shop = Shop(tmp_path, {"items": items_url, "sql": sql})
    shop.script(
        f"move = Move('Game', source=At('items', '{name}', ['/Game/*/*'], item('id')), "
        f"target=At('sql', tables('{name}', rounds=tables('{name}_round', order_by='pos'))))"
    )
    sides = {"source": lambda: Items(name), "target": lambda: Tables(sql, name)}
    application = Application(sides, writers=2)
    with application, Hooked(application, tmp_path) as hooked:
        yield Game(shop, application, hooked, items)  # type: ignore[arg-type]
        application.stop()
    items.close()


def test_nothing_is_lost_from_dynamodb_to_postgresql(game: Game) -> None:
    game.there_and_back()
    with game.shop.open() as project:
        commands.abort(project, "0001", drop_target=True)
    assert_nothing_left(game.tables.name)


def test_nothing_is_lost_from_cassandra_to_dynamodb(tmp_path: Path) -> None:
    name = kit.fresh("gateway")
    config = gateway.project(
        tmp_path, own.cassandra(), own.dynamodb(),
        f'{name!r}, layout=cassandra_table(key="id", columns={{"id": "text"}}, rest="others")',
        f'{name!r}, layout="item"',
    )  # fmt: skip
    with commands.Project(config, "test") as project:
        old, new = gateway.ends(project)
        old.create()
        writers = [Writer(config, word, patient, whole=True).start() for word in ("a", "b")]
        try:
            more(writers)
            gateway.begin(project)
            more(writers)
            for swap in (commands.cutover, commands.rollback, commands.cutover):
                gateway.swapped(swap, project)
                more(writers)
            for writer in writers:
                writer.stop()
        finally:
            for writer in writers:
                if not writer.waited:
                    writer.kill()
        with gateway.mirroring(config):
            until(lambda: gateway.held(old) == gateway.held(new), _LONG)
        gateway.assert_held(new, writers)
        gateway.assert_held(old, writers)
        commands.finish(project, "0001", keep_source=True)
    assert_nothing_left(name)


def test_a_block_goes_from_table_to_table_while_it_is_followed(tmp_path: Path) -> None:
    name, rules = kit.fresh("split"), ["/Game/*/rounds[*]", "/Game/*"]
    config = gateway.project(
        tmp_path, "embedded:///old.db", own.dynamodb(), '"games"',
        f'{name!r}, representation={rules}, layout=item("id", split=40)',
    )  # fmt: skip
    first, second = {"pos": 0, "n": 1}, {"pos": 1, "n": 2}
    with commands.Project(config, "test") as project, patient(config) as games:
        old, new = gateway.ends(project)
        assert isinstance(new, SplitCollection)
        old.create()
        for key, rounds in (("grows", []), ("shrinks", [first]), ("goes", [first])):
            games.put(key, {"id": key, "rounds": rounds})
        gateway.begin(project)
        until(lambda: games._here.follower.standing.phase is Phase.SHADOW_READ, _LONG)
        with gateway.mirroring(config):
            games.append("grows", "rounds", first, wait=True)
            games.update("shrinks", remove=["rounds[0]"], wait=True)
        assert new._small.held(["grows", "shrinks", "goes"]) == ["shrinks"]
        gateway.swapped(commands.cutover, project)
        for write in (
            lambda: games.update("grows", remove=["rounds[0]"]),
            lambda: games.append("shrinks", "rounds", first),
            lambda: games.append("shrinks", "rounds", second),
            lambda: games.delete("goes"),
            lambda: games.put("comes", {"id": "comes", "rounds": [first, second]}),
        ):
            write()
        assert new._small.held(["grows", "shrinks", "goes", "comes"]) == ["grows"]
        gateway.swapped(commands.rollback, project)
        told = {"grows": [], "shrinks": [first, second], "comes": [first, second]}
        expected = {key: {"id": key, "rounds": rounds} for key, rounds in told.items()}
        assert gateway.held(old) == gateway.held(new) == expected
        commands.abort(project, "0001", drop_target=True)


def assert_nothing_left(table: str) -> None:
    """A table has no stream any more that was made for a move, no tag, and no marker."""
    plain = client()
    found = plain.describe_table(TableName=table)["Table"]
    tags = plain.list_tags_of_resource(ResourceArn=found["TableArn"])["Tags"]
    assert ("StreamSpecification" in found, tags) == (False, [])
    items = plain.scan(TableName=table)["Items"]
    assert not [item for item in items if item["id"]["S"].startswith("_migrator-mark-")]
    plain.close()


def patient(config: Path) -> Gateway:
    """A gateway that outlasts a swap on a machine that is busy."""
    return opened(config, replace(QUICK, lease=5.0, bound=_LONG, request_life=5.0))


def more(writers: list[Writer]) -> None:
    before = [writer.lines() for writer in writers]
    until(lambda: all(w.lines() >= b + 4 for w, b in zip(writers, before, strict=True)), _LONG)
