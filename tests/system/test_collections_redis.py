"""MongoDB exports of others to Redis, in layouts and types of its own, and back with deadlines."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import redis as driver
from bson import CodecOptions, encode
from bson.raw_bson import RawBSONDocument

from tests.contract.servers import redis, rediscluster
from tests.system import kit, servers
from tests.system.kit import Shop, Urls
from tests.system.test_collections import COUNTS, documents, fields

DEADLINE = dt.datetime(2033, 5, 18, 3, 33, 20, 123_000, tzinfo=dt.UTC)
MILLIS = 2_000_000_000_123
DOCUMENT = "Layout('document', {'expires': 'expireAt'})"
# Every restaurant goes to other stores elsewhere; what is odd about them is in these, too.
STEPS = {"restaurant": 6}

Held = Mapping[bytes, bytes] | list[bytes] | bytes


def native(key: str, **parts: str) -> str:
    """Keys of an application: a hash of JSON, and fields of other types under keys beside it."""
    more = "".join(f", {name}=({f'{key}:{name}'!r}, {type_!r})" for name, type_ in parts.items())
    return f"redis_native({key!r}, 'hash of json'{more})"


@dataclass(frozen=True)
class Way:
    """How an export lies in Redis, and some of its keys as a person expects them.

    ``{name}`` stands for the collection. The blocks that ``lasting`` keys belong to have no
    deadline, all others do.
    """

    layout: Callable[[str], str]
    expected: Mapping[str, Held]
    lasting: str = "nothing"
    cluster: bool = False
    rules: str = "/Thing/*/*"


WAYS = {
    "restaurant": Way(
        lambda _: "'hash'",
        {
            '{name}:#"55f14312c7447c3da7051b26" {{"":"objectid"}}': {
                b"URL": b"http://www.just-eat.co.uk/restaurants-cn-chinese-cardiff/menu",
                b"address": b"228 City Road", b"address line 2": b"Cardiff",
                b"name": b".CN Chinese", b"outcode": b"CF24", b"postcode": b"3JH",
                b"rating": b"5", b"type_of_food": b"Chinese", b"_migrator": b"{}",
            },
        },
    ),
    "countries-small": Way(
        lambda name: native(
            f"{name}:{{id}}", borders="list", altSpellings="list", tld="list",
            latlng="list of json", languages="hash",
        ),
        {
            '{name}:#"55a0f42f20a4d760b5fc305e" {{"":"objectid"}}:latlng': [
                b"18.25", b"-63.16666666",
            ],
            '{name}:#"55a0f42f20a4d760b5fc305f" {{"":"objectid"}}:borders': [b"FRA", b"ESP"],
            '{name}:#"55a0f42f20a4d760b5fc305f" {{"":"objectid"}}:languages': {b"cat": b"Catalan"},
            '{name}:#"55a0f42f20a4d760b5fc305f" {{"":"objectid"}}:altSpellings': [
                b"AD", b"Principality of Andorra", b"Principat d'Andorra",
            ],
        },
        lasting="305f",
    ),
    "students": Way(
        lambda name: native(f"{{{{{name}:{{id}}}}}}", scores="list of json"),
        {
            "{{{name}:#0}}": {b"name": b'"aimee Zank"'},
            "{{{name}:#0}}:scores": [
                b'{"score":1.463179736705023,"type":"exam"}',
                b'{"score":11.78273309957772,"type":"quiz"}',
                b'{"score":35.8740349954354,"type":"homework"}',
            ],
        },
        cluster=True,
    ),
    "grades": Way(
        lambda _: "'string'",
        {
            '{name}:#"50b59cd75bed76f46522c34e" {{"":"objectid"}}':
            b'{"student_id":0,"class_id":2,"scores":[{"type":"exam","score":57.92947112575566},'
            b'{"type":"quiz","score":21.24542588206755},'
            b'{"type":"homework","score":68.1956781058743},'
            b'{"type":"homework","score":67.95019716560351},'
            b'{"type":"homework","score":18.81037253352722}]}',
        },
        rules="/Thing/*",
    ),
    "products": Way(
        lambda _: "'keys'",
        {
            "{{{name}:ac3}}": dict.fromkeys(
                (b"name", b"brand", b"type", b"price", b"rating", b"warranty_years", b"available"),
                b"",
            ),
            "{{{name}:ac3}}:price": b"200", "{{{name}:ac3}}:rating": b"3.8",
            "{{{name}:ac3}}:available": b"true", "{{{name}:ac3}}:brand": b"ACME",
            "{{{name}:ac7}}:warranty_years": b"1",
        },
        lasting="ac7",
        cluster=True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COUNTS)
def test_a_collection_goes_to_redis_and_comes_back(name: str, tmp_path: Path, urls: Urls) -> None:
    given = documents(name)[:: STEPS.get(name, 1)]
    for document in given[::3]:
        document["expireAt"] = DEADLINE
    way, prefix, url = WAYS[name], kit.fresh("export"), urls("mongodb", "")
    with servers.connect_mongodb(url) as client:
        client.get_default_database()[f"{prefix}_1"].insert_many(given)
    shop = Shop(tmp_path, {"docs": url, "cache": rediscluster() if way.cluster else redis()})
    first, third = (f"At('docs', '{prefix}_{i}', layout={DOCUMENT})" for i in (1, 3))
    second = f"At('cache', {prefix!r}, [{way.rules!r}], {way.layout(prefix)})"
    shop.script(f"move = {kit.move('Thing', first, second)}")
    shop.script(f"move = {kit.move('Thing', second, third)}")
    (found,) = kit.carry(shop, shop.revisions[0])
    assert found.equal == len(given)
    check_by_the_plain_driver(way, prefix, len(given))
    (found,) = kit.carry(shop, shop.revisions[1])
    assert found.equal == len(given)

    raw: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)
    with servers.connect_mongodb(url) as client:
        came = client.get_default_database().get_collection(f"{prefix}_3", raw)
        lies = {encode({"_id": each["_id"]}): fields(each) for each in came.find()}
    # Byte-equal field by field, kinds of numbers and the deadline included.
    assert lies == {
        encode({"_id": each["_id"]}): fields(RawBSONDocument(encode(each))) for each in given
    }


def check_by_the_plain_driver(way: Way, name: str, blocks: int) -> None:
    plain = connected(cluster=way.cluster)
    try:
        read: dict[bytes, Callable[[bytes], Any]] = {
            b"hash": plain.hgetall,
            b"list": lambda key: plain.lrange(key, 0, -1),
            b"string": plain.get,
        }
        for template, held in way.expected.items():
            key = template.format(name=name).encode()
            assert read[plain.type(key)](key) == held, key
            assert plain.pexpiretime(key) == (-1 if way.lasting.encode() in key else MILLIS), key
        # A deadline is one of all keys of its block, and a third of the blocks have one.
        deadlines: dict[bytes, set[int]] = {}
        for key in plain.scan_iter(match=f"*{name}:*", count=1000):
            root = key[: key.rindex(b"}") + 1] if b"}" in key else key
            deadlines.setdefault(root, set()).add(plain.pexpiretime(key))
        assert len(deadlines) == blocks
        assert all(len(each) == 1 for each in deadlines.values())
        assert sum(each == {MILLIS} for each in deadlines.values()) == -(-blocks // 3)
    finally:
        plain.close()


def connected(*, cluster: bool) -> Any:
    """The plain driver, where the store's URL leads."""
    if not cluster:
        return driver.Redis.from_url(redis())
    return driver.RedisCluster.from_url(rediscluster().replace("rediscluster:", "redis:"))
