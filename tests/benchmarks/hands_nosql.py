"""What an application does by hand on Redis, MongoDB, DynamoDB and Cassandra.

Each change is one atomic request that refuses where there is no such game; on Cassandra it stands
between the two halves of a bracket, after two reads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymongo
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from cassandra import ConsistencyLevel
from pymongo import ReturnDocument, WriteConcern

from migrator.model.value import Record
from migrator.stores.redis import scripts
from tests.benchmarks import clients
from tests.benchmarks.hands import SPELLS, TABLE, Hand, game, must, round_
from tests.contract.feeds_dynamodb import client
from tests.contract.own_redis import Own
from tests.system.application import Documents
from tests.system.test_live_dynamodb import Items
from tests.system.test_live_redis import Keys

# A change by a script, which a server carries out alone, and the game after that.
_CHANGED = """
if redis.call('exists', KEYS[1]) == 0 then return nil end
{change}
return {{redis.call('hgetall', KEYS[1]), redis.call('lrange', KEYS[2], 0, -1)}}
"""


@contextmanager
def of_redis(own: Own, games: int) -> Iterator[Hand]:
    keys = Keys(own, TABLE)
    session = keys.client
    for number in range(games):
        keys.put(f"game-{number}", number, SPELLS)
    numbered = session.register_script(
        _CHANGED.format(change="redis.call('hset', KEYS[1], 'n', ARGV[1])")
    )
    longer = session.register_script(
        _CHANGED.format(change="redis.call('rpush', KEYS[2], ARGV[1])")
    )

    def places(key: str) -> list[str]:
        return [f"{TABLE}:{key}", f"{TABLE}:{key}:rounds"]

    def made(fields: Any, rounds: list[bytes]) -> Record:
        value: Record = {name.decode(): json.loads(text) for name, text in fields}
        return {**value, "rounds": [json.loads(each) for each in rounds]}

    def get(key: str) -> Record:
        place, below = places(key)
        with session.pipeline(transaction=True) as step:
            step.hgetall(place)
            step.lrange(below, 0, -1)
            fields, rounds = step.execute()
        return made(fields.items(), rounds)

    def changed(script: Any, key: str, given: object) -> Record:
        fields, rounds = must(script(keys=places(key), args=[given]))
        return made(zip(fields[::2], fields[1::2], strict=True), rounds)

    looking = scripts.of_parts({"": "hash of json", "rounds": "list of json"})
    assert looking is not None
    sure = session.register_script(looking.text)

    def sent(key: str, *change: object) -> Record:
        fields, rounds, _ = must(sure(keys=places(key), args=["nobody-guesses", *change]))
        return made(zip(fields[::2], fields[1::2], strict=True), rounds)

    yield Hand(
        get,
        lambda key, number: keys.put(key, number, SPELLS),
        lambda key, number: changed(numbered, key, number),
        lambda key, place: changed(longer, key, json.dumps(round_(place))),
        lambda key, number: session.hset(places(key)[0], "n", str(number)),
        lambda key, place: session.rpush(places(key)[1], json.dumps(round_(place))),
        {
            "update": lambda key, number: sent(key, 1, "HSET", "n", number),
            "append": lambda key, place: sent(key, 2, "RPUSH", json.dumps(round_(place))),
        },
    )
    session.close()


@contextmanager
def of_documents(url: str, games: int) -> Iterator[Hand]:
    documents = Documents(url, TABLE)
    # As durable as a gateway's.
    durable = WriteConcern("majority", j=True)
    games_ = documents.games = documents.games.with_options(write_concern=durable)
    for number in range(games):
        documents.put(f"game-{number}", number, SPELLS)

    def changed(key: str, change: dict[str, Any], **where: Any) -> object:
        return must(
            games_.find_one_and_update(
                {"_id": key, **where}, change, return_document=ReturnDocument.AFTER
            )
        )

    def sent(key: str, change: dict[str, Any], name: str, **where: Any) -> object:
        """As a gateway: only where the field is what it looks like, and given up in a minute."""
        with pymongo.timeout(60):
            return changed(key, change, **{f"_migrator.tags.{name}": {"$exists": False}, **where})

    def bare(key: str, change: dict[str, Any]) -> None:
        must(games_.update_one({"_id": key}, change).matched_count)

    yield Hand(
        lambda key: games_.find_one({"_id": key}),
        lambda key, number: documents.put(key, number, SPELLS),
        lambda key, number: changed(key, {"$set": {"n": number}}),
        lambda key, place: changed(key, {"$push": {"rounds": round_(place)}}),
        lambda key, number: bare(key, {"$set": {"n": number}}),
        lambda key, place: bare(key, {"$push": {"rounds": round_(place)}}),
        {
            "update": lambda key, number: sent(key, {"$set": {"n": number}}, "n"),
            "append": lambda key, place: sent(
                key, {"$push": {"rounds": round_(place)}}, "rounds", rounds={"$type": "array"}
            ),
        },
    )
    documents.close()


@contextmanager
def of_dynamodb(name: str, games: int) -> Iterator[Hand]:
    """One consistent read of the item, one put of it, one update on condition that it is there."""
    items, plain, wire = Items(name), TypeDeserializer(), TypeSerializer()
    made = client()
    made.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    for number in range(games):
        items.put(f"game-{number}", number, SPELLS)

    def told(item: dict[str, Any]) -> object:
        return {word: plain.deserialize(held) for word, held in item.items()}

    def get(key: str) -> object:
        found = made.get_item(TableName=name, Key={"id": {"S": key}}, ConsistentRead=True)
        return told(found.get("Item", {}))

    def changed(
        key: str,
        change: str,
        given: object,
        returned: str = "ALL_NEW",
        only: str = "attribute_exists(id)",
        **more: Any,
    ) -> object:
        found = made.update_item(
            TableName=name,
            Key={"id": {"S": key}},
            UpdateExpression=f"SET {change}",
            ConditionExpression=only,
            ExpressionAttributeValues={":given": wire.serialize(given), **more.pop("values", {})},
            ReturnValues=returned,
            **more,
        )
        return told(found.get("Attributes", {}))

    def sent(key: str, change: str, given: object, field: str, there: str, **values: Any) -> object:
        """As a gateway: only where the field is what it looks like, and is not in the rest."""
        names = {"#0": "_migrator", "#1": "tags", "#2": "_", "#3": field}
        only = f"attribute_not_exists(#2) AND {there} AND attribute_not_exists(#0.#1.#3)"
        return changed(key, change, given, only=only, ExpressionAttributeNames=names, values=values)

    longer = "rounds = list_append(rounds, :given)"
    try:
        yield Hand(
            get,
            lambda key, number: items.put(key, number, SPELLS),
            lambda key, number: changed(key, "n = :given", number),
            lambda key, place: changed(key, longer, [round_(place)]),
            lambda key, number: changed(key, "n = :given", number, "NONE"),
            lambda key, place: changed(key, longer, [round_(place)], "NONE"),
            {
                "update": lambda key, number: sent(
                    key, "#3 = :given", number, "n", "attribute_exists(#3)"
                ),
                "append": lambda key, place: sent(
                    key, "#3 = list_append(#3, :given)", [round_(place)], "rounds",
                    "attribute_type(#3, :list)", **{":list": {"S": "L"}},
                ),
            },
        )  # fmt: skip
    finally:
        made.delete_table(TableName=name)
        made.close()
        items.close()


@contextmanager
def of_cassandra(games: int) -> Iterator[Hand]:
    """The same five requests: a row beside the data, what lies there, twice, the data by a
    lightweight transaction, the row once more."""
    session: Any = clients.connect_cassandra()
    session.set_keyspace(clients.KEYSPACE)
    session.execute(
        'CREATE TABLE by_hand (block text PRIMARY KEY, "entries" map<text, text>, version bigint)'
    )
    session.execute(
        "CREATE TABLE by_hand_bracket (bucket bigint, id blob, key text, state text, "
        "deleted boolean, PRIMARY KEY (bucket, id))"
    )

    def prepared(text: str) -> Any:
        made = session.prepare(text)
        made.consistency_level = ConsistencyLevel.LOCAL_QUORUM
        return made

    insert = prepared('INSERT INTO by_hand (block, "entries") VALUES (?, ?)')
    select = prepared('SELECT block, "entries" FROM by_hand WHERE block = ?')
    versioned = prepared('SELECT block, "entries", version FROM by_hand WHERE block = ?')
    change = prepared(
        'UPDATE by_hand SET version = ?, "entries" = "entries" + ? WHERE block = ? IF version = ?'
    )
    opens = prepared(
        "INSERT INTO by_hand_bracket (bucket, id, key, state, deleted) VALUES (?, ?, ?, 'o', false)"
    )
    closes = prepared("UPDATE by_hand_bracket SET state = 'c' WHERE bucket = ? AND id = ?")

    def cells(value: Record) -> dict[str, str]:
        return {name: json.dumps(item) for name, item in value.items()}

    def changed(key: str, of: Any) -> Record:
        now = time.time_ns()
        bucket, id = now // 10**9, now.to_bytes(16)
        session.execute(opens, (bucket, id, key))
        there = get(key)
        must(there)
        given = of(there)
        _, _, version = session.execute(versioned, (key,)).one()
        done = session.execute(change, ((version or 0) + 1, cells(given), key, version))
        must(done.was_applied)
        session.execute(closes, (bucket, id))
        return {**there, **given}

    def get(key: str) -> Record:
        row = session.execute(select, (key,)).one()
        return row and {name: json.loads(text) for name, text in row[1].items()}

    for number in range(games):
        name = f"game-{number}"
        session.execute(insert, (name, cells(game(name, number))))
    yield Hand(
        get,
        lambda key, number: changed(key, lambda _: game(key, number)),
        lambda key, number: changed(key, lambda _: {"n": number}),
        lambda key, place: changed(
            key, lambda there: {"rounds": [*there["rounds"], round_(place)]}
        ),
    )
    session.cluster.shutdown()
