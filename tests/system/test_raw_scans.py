"""A block shrinks, one moves with an attribute of its key, one goes: what a raw scan then shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import boto3
import pytest
import redis as driver

from migrator import At, Layout, cassandra_table, item_collection
from migrator.model.block import Address, Aggregate, Block, cut
from migrator.model.value import Record
from migrator.ports import Collection
from tests.contract.servers import _cassandra
from tests.system import kit
from tests.system.kit import Shop, Urls

RULES = ["/Game/*/rounds[*]", "/Game/*"]
COLUMNS = {"day": "text", "id": "text", "rounds": "json"}
Lies = Mapping[Any, Any]
"""What lies there: an address, and what of a block can be told apart there."""


@dataclass(frozen=True)
class Raw:
    """A layout, the plain driver's scan of it, and what that must show in the end."""

    server: str
    layout: Layout
    scan: Callable[[str, str], Lies]
    shows: Callable[[str], Lies]


def entries(count: int, root: str = "", element: str = "rounds[{}]") -> set[str]:
    return {root, *(element.format(n) for n in range(count))}


def _redis_hash(url: str, name: str) -> Lies:
    with driver.Redis.from_url(url, decode_responses=True) as plain:
        keys = list(plain.scan_iter(match=f"*{name}*"))
        return {key: set(plain.hkeys(key)) - {"_migrator"} for key in keys}  # type: ignore[arg-type]


def _redis_keys(url: str, name: str) -> Lies:
    with driver.Redis.from_url(url, decode_responses=True) as plain:
        return dict.fromkeys(plain.scan_iter(match=f"*{name}*"))


def _items(url: str, name: str) -> Lies:
    client: Any = boto3.client(
        "dynamodb", endpoint_url=f"http://{urlsplit(url).netloc}", region_name="eu-west-1",
        aws_access_key_id="test", aws_secret_access_key="test",
    )  # fmt: skip
    items = client.scan(TableName=name, ConsistentRead=True)["Items"]
    keys = ("id",) if "id" in items[0] and "pk" not in items[0] else ("pk", "sk")
    told = {tuple(x[key]["S"] for key in keys): x.keys() - {"_migrator", *keys} for x in items}
    return told if keys == ("id",) else dict.fromkeys(told)


def _rows(select: str) -> Callable[[str, str], Lies]:
    def scan(_: str, name: str) -> Lies:
        session, keyspace = _cassandra()
        rows = [tuple(row) for row in session.execute(f"SELECT {select} FROM {keyspace}.{name}")]
        assert len(rows) == len(set(map(repr, rows)))
        return {row[:2]: set(row[2]) if len(row) > 2 else None for row in rows}

    return scan


def _gathered(_: str) -> Lies:
    elements = "{}~LINE#{{:02}}"
    return dict.fromkeys(
        [("DAY#mon", sk) for sk in entries(3, "a~HEAD", elements.format("a"))]
        + [("DAY#sun", sk) for sk in entries(12, "b~HEAD", elements.format("b"))]
    )


LAYOUTS = {
    "redis-hash": Raw(
        "redis", Layout("hash"), _redis_hash,
        lambda name: {f"{name}:a": entries(3), f"{name}:b": entries(12)},
    ),
    "redis-keys": Raw(
        "redis", Layout("keys"), _redis_keys,
        lambda name: dict.fromkeys(
            [f"{{{name}:{id}}}" for id in "ab"]
            + [f"{{{name}:a}}:{path}" for path in entries(3)]
            + [f"{{{name}:b}}:{path}" for path in entries(12)]
        ),
    ),
    "redis-string": Raw(
        "redis", Layout("string"), _redis_keys,
        lambda name: dict.fromkeys([f"{name}:a", f"{name}:b"]),
    ),
    "dynamodb-item": Raw(
        "dynalite", Layout("item"), _items,
        lambda _: {("a",): entries(3, "_"), ("b",): entries(12, "_")},
    ),
    "dynamodb-collection": Raw(
        "dynalite",
        item_collection(
            "DAY#{day}", "{id}~{entry}", entries={"rounds[*]": "LINE#{index:02}", "": "HEAD"}
        ),
        _items, _gathered,
    ),
    "cassandra-partition": Raw(
        "cassandra", Layout("partition"), _rows("block, entry"),
        lambda _: dict.fromkeys(
            [("a", path) for path in entries(3)] + [("b", path) for path in entries(12)]
        ),
    ),
    "cassandra-row": Raw(
        "cassandra", Layout("row"), _rows('block, expires, "entries"'),
        lambda _: {("a", None): entries(3), ("b", None): entries(12)},
    ),
    "cassandra-table": Raw(
        "cassandra", cassandra_table(key="day", clustering="id", id="id", columns=COLUMNS),
        _rows("day, id"), lambda _: {("mon", "a"): None, ("sun", "b"): None},
    ),
}  # fmt: skip


def game(of: Collection, id: str, day: str, rounds: int) -> Block:
    value: Record = {"id": id, "day": day, "rounds": [{"n": n} for n in range(rounds)]}
    return cut(Aggregate(id, value), of.at.rules(of.cls))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_block_lies_at_one_address_and_nothing_else(
    layout: str, tmp_path: Any, urls: Urls
) -> None:
    raw, name = LAYOUTS[layout], kit.fresh("raw")
    url = urls(raw.server, "own")
    whole = raw.layout.name in ("string", "table")
    with Shop(tmp_path, {"own": url}).open() as project:
        at = At("own", name, ["/Game/*"] if whole else RULES, raw.layout)
        games = project.stores.get("own").collection("Game", at)
        games.create()
        games.write([game(games, id, "mon", 12) for id in "abc"])
        # Twelve rounds become three; the day is an attribute of the key where there is one.
        games.write([game(games, "a", "mon", 3), game(games, "b", "sun", 12)])
        (going,) = games.read(["c"])
        assert going is not None
        games.delete([Address("c", going.place)])
        assert raw.scan(url, name) == raw.shows(name)
        games.drop()
