"""Each kind that a store says it holds natively is of that type by the server's own word.

MongoDB has this in tests/stores/test_mongo.py, Redis' types of an application in test_redis.py.
"""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import boto3
import pytest
import redis

from migrator.model import value as v
from migrator.model.block import Block
from migrator.model.layouts import cassandra_table
from migrator.model.move import At, Layout, tables
from migrator.model.value import Kind, Record, Value
from migrator.ports import Collection, How, Store
from tests.contract.servers import _cassandra
from tests.system import kit, servers
from tests.system.kit import Shop, Urls
from tests.system.test_pairs_tables import TABLES, Typed, field

VALUES: Mapping[Kind, Value] = {
    Kind.NULL: None, Kind.BOOLEAN: True, Kind.INT32: 5, Kind.INT64: 2**40,
    Kind.INTEGER: 2**70, Kind.DOUBLE: 0.5, Kind.DECIMAL: Decimal("1.50"), Kind.TEXT: "é",
    Kind.BYTES: b"\0\xff", Kind.DATE: dt.date(2024, 2, 29), Kind.TIME: dt.time(1, 2, 3),
    Kind.TIMESTAMP: dt.datetime(2024, 2, 29, 1, 2, 3, tzinfo=dt.UTC),
    Kind.LOCAL_TIMESTAMP: dt.datetime(2024, 2, 29, 1, 2, 3), Kind.INTERVAL: v.Interval(1, 2, 3_000),
    Kind.UUID: UUID(int=7), Kind.SET: v.Set(["a"]), Kind.LIST: [5], Kind.RECORD: {"a": 5},
}  # fmt: skip
Told = Mapping[Kind, str]


def assert_native(store: Store, collection: Collection, said: Told) -> None:
    """The store's own natives, all of those that a value of VALUES stands for."""
    natives = {
        kind: held.type
        for kind, held in store.capabilities.at(collection.at.layout).kinds.items()
        if held.how is How.NATIVE and kind is not Kind.REFERENCE
    }
    assert said.keys() == natives.keys()
    assert {k: word for k, word in said.items() if word not in natives[k]} == {}


def written(store: Store, at: At) -> Collection:
    """A collection with a block for each native kind, its value as ``v`` under the kind's name."""
    collection = store.collection("Game", at)
    collection.create()
    kinds = store.capabilities.at(at.layout).kinds
    collection.write(
        [
            kit.block(kind.value, {"v": value}, at.rules("Game"))
            for kind, value in VALUES.items()
            if kinds[kind].how is How.NATIVE
        ]
    )
    return collection


# ---------------------------------------------------------------- JSON


_JSON = {int: "number", float: "number", list: "list", dict: "object", str: "string"}
_ENTRIES = {
    "sqlite": "SELECT block, json_type(value, '$.v') FROM {}",
    "postgresql": "SELECT block, jsonb_typeof(value::jsonb -> 'v') FROM {}",
    "mariadb": "SELECT block, lower(json_type(json_extract(value, '$.v'))) FROM {}",
}
_NUMBERS = ("integer", "real", "double", "unsigned integer", "decimal")


def json_word(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    return _JSON.get(type(value), "null")


@pytest.mark.parametrize("server", _ENTRIES)
def test_json_of_relational_systems(server: str, tmp_path: Path, urls: Urls) -> None:
    with own(tmp_path, sql_url(server, urls)) as store:
        collection = written(store, At("own", kit.fresh("kinds"), layout="entries"))
        rows = ask(server, tmp_path, urls, _ENTRIES[server].format(collection.at.collection))
    said = {Kind(k.decode() if isinstance(k, bytes) else k): word for k, word in rows}
    said = {k: "number" if w in _NUMBERS else w for k, w in said.items()}
    said = {k: {"text": "string", "true": "boolean"}.get(w, w) for k, w in said.items()}
    assert_native(store, collection, said)


@pytest.mark.parametrize("layout", ["hash", "keys", "string"])
def test_json_of_redis(layout: str, tmp_path: Path, urls: Urls) -> None:
    rules = kit.EAO if layout == "string" else kit.ETF
    with own(tmp_path, urls("redis", "own")) as store:
        collection = written(store, At("own", kit.fresh("kinds"), rules, layout))
        name, plain = collection.at.collection, redis.Redis.from_url(urls("redis", "own"))

        def lies(kind: Kind) -> Any:
            if layout == "hash":
                return plain.hget(f"{name}:{kind.value}", "v")
            if layout == "keys":
                return plain.get(f"{{{name}:{kind.value}}}:v")
            return plain.get(f"{name}:{kind.value}")

        natives = (k for k in VALUES if store.capabilities.kinds[k].how is How.NATIVE)
        said = {kind: lies(kind).decode() for kind in natives}
    if layout == "string":
        said = {kind: json_word(json.loads(text)["v"]) for kind, text in said.items()}
    else:  # a text is itself
        text = said.pop(Kind.TEXT)
        assert text == VALUES[Kind.TEXT]
        said = {kind: json_word(json.loads(text)) for kind, text in said.items()}
        said[Kind.TEXT] = "string"
    assert_native(store, collection, said)


@pytest.mark.parametrize("layout", ["row", "partition"])
def test_json_of_cassandra(layout: str, tmp_path: Path, urls: Urls) -> None:
    with own(tmp_path, urls("cassandra", "own")) as store:
        collection = written(store, At("own", kit.fresh("kinds"), kit.ETF, layout))
        session, keyspace = _cassandra()
        cell = "value" if layout == "partition" else '"entries"'
        rows = session.execute(f'SELECT block, {cell} FROM {keyspace}."{collection.at.collection}"')
        said = {
            Kind(key): json_word(json.loads(held if layout == "partition" else held["v"]))
            for key, held in rows
        }
    said = {
        k: {"string": "text", "true or false": "json true or false"}.get(w, w)
        for k, w in said.items()
    }
    assert_native(store, collection, said)


# ---------------------------------------------------------------- types


def test_attributes_of_dynamodb(tmp_path: Path, urls: Urls) -> None:
    url = urls("dynalite", "own")
    with own(tmp_path, url) as store:
        collection = written(store, At("own", kit.fresh("kinds"), kit.ETF, "item"))
        parts = urlsplit(url)
        client: Any = boto3.client(
            "dynamodb", endpoint_url=f"http://{parts.netloc}", aws_access_key_id="test",
            region_name=parse_qs(parts.query)["region"][0], aws_secret_access_key="test",
        )  # fmt: skip
        found = client.scan(TableName=collection.at.collection, ConsistentRead=True)["Items"]
    said = {Kind(item["id"]["S"]): next(iter(item["v"])) for item in found}
    assert_native(store, collection, said)


def test_columns_of_cassandra(tmp_path: Path, urls: Urls) -> None:
    columns = {
        Kind.BOOLEAN: "boolean", Kind.INT32: "int", Kind.INT64: "bigint", Kind.INTEGER: "varint",
        Kind.DOUBLE: "double", Kind.DECIMAL: "decimal", Kind.TEXT: "text", Kind.BYTES: "blob",
        Kind.DATE: "date", Kind.TIME: "time", Kind.TIMESTAMP: "timestamp", Kind.UUID: "uuid",
        Kind.INTERVAL: "duration", Kind.SET: "set<text>", Kind.LIST: "list<int>",
        Kind.RECORD: "map<text, int>",
    }  # fmt: skip
    declared = {field(kind): type for kind, type in columns.items()}
    layout = cassandra_table(key="id", columns={"id": "text", **declared})
    with own(tmp_path, urls("cassandra", "own")) as store:
        collection = store.collection("Game", At("own", kit.fresh("kinds"), kit.EAO, layout))
        collection.create()
        every: Record = {"id": "x", **{field(kind): VALUES[kind] for kind in columns}}
        collection.write([Block("x", {"": every})])
        session, keyspace = _cassandra()
        query = "SELECT column_name, type FROM system_schema.columns WHERE keyspace_name = %s "
        types = dict(
            session.execute(query + "AND table_name = %s", [keyspace, collection.at.collection])
        )
        names = ", ".join(declared)
        (row,) = session.execute(f'SELECT {names} FROM {keyspace}."{collection.at.collection}"')
    assert None not in tuple(row)
    said = {kind: types[field(kind)].partition("<")[0] for kind in columns}
    assert_native(store, collection, said)


_TYPE = {
    "sqlite": "SELECT type FROM pragma_table_info('{table}') WHERE name = '{column}' "
    "AND EXISTS (SELECT 1 FROM {table} WHERE typeof({column}) = '{stored}')",
    "postgresql": "SELECT pg_typeof({column})::text FROM {table} WHERE id = '{row}'",
    # JSON is a longtext there, which is asked for what it holds.
    "mariadb": "SELECT if(id IN ('list', 'record') AND json_valid({column}), 'json', column_type) "
    "FROM {table}, information_schema.columns WHERE table_schema = database() "
    "AND table_name = '{table}' AND column_name = '{column}' AND id = '{row}'",
}
_STORED = {Kind.INT32: "integer", Kind.INT64: "integer", Kind.DOUBLE: "real", Kind.BYTES: "blob"}
_WORDS = {
    "time without time zone": "time", "timestamp with time zone": "timestamptz",
    "timestamp without time zone": "timestamp", "int(11)": "int", "bigint(20)": "bigint",
    "decimal(65,2)": "decimal(p,s)", "set('a','b')": "set",
}  # fmt: skip


@pytest.mark.parametrize("place", TABLES, ids=str)
def test_columns_of_relational_systems(place: Typed, tmp_path: Path, urls: Urls) -> None:
    server = place.server or "sqlite"
    columns = dict(place.types)
    if server == "mariadb":
        columns[Kind.SET] = "set('a','b')"
    with own(tmp_path, sql_url(server, urls)) as store:
        kinds = store.capabilities.at(Layout("tables")).kinds
        natives = [kind for kind in columns if kinds[kind].how is How.NATIVE]
        declared = {field(kind): columns[kind] for kind in natives}
        spec = tables(kit.fresh("kinds"), key="id", columns={"id": "varchar(40)", **declared})
        collection = store.collection("Game", At("own", spec))
        collection.create()
        empty: Record = dict.fromkeys(declared)
        collection.write(
            [
                Block(kind.value, {"": {"id": kind.value, **empty, field(kind): VALUES[kind]}})
                for kind in natives
            ]
        )
        said = {}
        for kind in natives:
            query = _TYPE[server].format(
                table=spec.table,
                column=field(kind),
                row=kind.value,
                stored=_STORED.get(kind, "text"),
            )
            ((word,),) = ask(server, tmp_path, urls, query)
            said[kind] = _WORDS.get(word, word)
        column = field(natives[0])
        nulls = f"SELECT count(*) FROM {spec.table} WHERE {column} IS NULL"
        assert ask(server, tmp_path, urls, nulls) == [(len(natives) - 1,)]
    said[Kind.NULL] = "NULL"
    assert_native(store, collection, said)


# ---------------------------------------------------------------- where


@contextmanager
def own(folder: Path, url: str) -> Iterator[Store]:
    with Shop(folder, {"own": url}).open() as project:
        yield project.stores.get("own")


def sql_url(server: str, urls: Urls) -> str:
    return urls(None if server == "sqlite" else server, "own")


def ask(server: str, folder: Path, urls: Urls, query: str) -> list[Any]:
    if server != "sqlite":
        return servers.rows(server, sql_url(server, urls), query)
    with closing(sqlite3.connect(folder / "own.db")) as connection:
        return connection.execute(query).fetchall()
