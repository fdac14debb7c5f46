"""Whether a server of DynamoDB's protocol finds each item that it took, by boto3 alone.

Drops, makes and fills a table again and again, then gets each key. Dynalite without ``survive.js``
misses single keys in about every other round; with it, none: ``python scripts/dynalite/reread.py``.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import boto3

TABLE = "reread"
ITEMS, ROUNDS, BATCH = 2000, 20, 25

client = boto3.client(
    "dynamodb",
    endpoint_url=sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:15001",
    region_name="eu-west-1",
    aws_access_key_id="test",
    aws_secret_access_key="test",
)


def key(number: int) -> dict[str, dict[str, str]]:
    return {"id": {"S": f"{number:08}"}}


def drop() -> None:
    try:
        client.delete_table(TableName=TABLE)
    except client.exceptions.ResourceNotFoundException:
        return
    client.get_waiter("table_not_exists").wait(TableName=TABLE, WaiterConfig={"Delay": 1})


def create() -> None:
    client.create_table(
        TableName=TABLE,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client.get_waiter("table_exists").wait(TableName=TABLE, WaiterConfig={"Delay": 1})


def put(start: int) -> None:
    left = [
        {"PutRequest": {"Item": {**key(number), "value": {"S": os.urandom(3000).hex()}}}}
        for number in range(start, start + BATCH)
    ]
    while left:
        answer = client.batch_write_item(RequestItems={TABLE: left})
        left = answer["UnprocessedItems"].get(TABLE, [])


def is_there(number: int) -> bool:
    return "Item" in client.get_item(TableName=TABLE, Key=key(number), ConsistentRead=True)


def scanned() -> int:
    pages = client.get_paginator("scan").paginate(TableName=TABLE, ConsistentRead=True)
    return sum(page["Count"] for page in pages)


missed = 0
with ThreadPoolExecutor(2) as threads:
    for turn in range(ROUNDS):
        drop()
        create()
        list(threads.map(put, range(0, ITEMS, BATCH)))
        gone = [n for n, there in enumerate(threads.map(is_there, range(ITEMS))) if not there]
        missed += len(gone)
        print(f"{turn}: get misses {gone}, a scan lists {scanned()} of {ITEMS}", flush=True)
drop()
sys.exit(1 if missed else 0)
