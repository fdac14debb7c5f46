"""One collection under other partition keys of DynamoDB, Cassandra and Redis, and back again."""

from __future__ import annotations

import datetime as dt
from binascii import crc32
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3
import redis as driver

from migrator import At
from migrator.model.move import Layout
from migrator.model.value import Record
from tests.contract.servers import _cassandra, redis
from tests.system import kit
from tests.system.kit import Shop, Urls

SHARDS = "{'shard': Shard(16, 'id')}"


def invoice(n: int) -> Record:
    at = dt.datetime(2026, 3, 1 + n % 5, tzinfo=dt.UTC)
    return {"id": f"i{n}", "customer": n % 7, "at": at, "total": n / 2}


INVOICES: list[kit.Game] = [(f"i{n}", invoice(n)) for n in range(60)]


def test_two_partition_keys_and_shards_by_suffix_and_back(tmp_path: Path, urls: Urls) -> None:
    stores = {"dynamo": urls("dynalite", "dynamo"), "wide": urls("cassandra", "wide")}
    shop = Shop(tmp_path, {**stores, "cache": redis()})
    old, wide, sharded, back = (kit.fresh(name) for name in ("old", "wide", "shard", "back"))
    source = f"At('dynamo', {old!r}, layout='item')"
    columns = {"customer": "int", "id": "text", "at": "timestamp", "total": "double"}
    table = f"cassandra_table(key='customer', clustering='id', columns={columns})"
    # One table to two: by customer, which is a composite key, and by a suffix that spreads writes.
    shop.script(f"""moves = [
    Move("OfCustomer", of="Invoice", source={source}, target=At('wide', {wide!r}, layout={table}),
         evolve=[ReKey(["customer", "id"], was="id")]),
    Move("Sharded", of="Invoice", source={source},
         target=At('dynamo', {sharded!r}, layout=item("pk")),
         evolve=[ReKey(Template("{{}}#{{shard:02}}", {SHARDS}))]),
]""")
    # A composite key to a single one, and the suffix taken off.
    shop.script(f"""moves = [
    Move("Invoice", of="OfCustomer", target=At('cache', {back!r}),
         evolve=[ReKey("id", was=["customer", "id"])]),
    Move("Again", of="Sharded", target=At('wide', {back!r}, layout='partition'),
         evolve=[ReKey("id", was=Template("{{id}}#{{shard:02}}", {SHARDS}))]),
]""")
    with shop.open() as project:
        at = At("dynamo", old, layout="item")
        kit.fill(project.stores.get("dynamo").collection("Invoice", at), INVOICES)
    assert [found.equal for found in kit.carry(shop, "0001")] == [60, 60]
    session, keyspace = _cassandra()
    rows = session.execute(f"SELECT id, total FROM {keyspace}.{wide} WHERE customer = 3")
    assert [(row.id, row.total) for row in rows] == sorted(
        (f"i{n}", n / 2) for n in range(60) if n % 7 == 3
    )
    keys = {item["pk"]["S"] for item in plain(stores["dynamo"]).scan(TableName=sharded)["Items"]}
    assert keys == {f"i{n}#{crc32(f'i{n}'.encode()) % 16:02}" for n in range(60)}
    assert len({key.rpartition("#")[2] for key in keys}) > 10
    assert [found.equal for found in kit.carry(shop, "0002")] == [60, 60]
    with driver.Redis.from_url(redis()) as cache:
        assert {key.decode() for key in cache.scan_iter(match=f"{back}:*")} == {
            f"{back}:{id}" for id, _ in INVOICES
        }
    with shop.open() as project:
        for store, cls, layout in (("cache", "Invoice", "hash"), ("wide", "Again", "partition")):
            place = At(store, back, layout=Layout(layout))
            found = kit.contents(project.stores.get(store).collection(cls, place))
            kit.assert_equal(found, kit.by_key(INVOICES))


def plain(url: str) -> Any:
    return boto3.client(
        "dynamodb", endpoint_url=f"http://{urlsplit(url).netloc}", region_name="eu-west-1",
        aws_access_key_id="test", aws_secret_access_key="test",
    )  # fmt: skip
