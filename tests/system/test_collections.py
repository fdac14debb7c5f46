"""MongoDB exports of others: put there by the plain driver, to the embedded store and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bson import CodecOptions, encode, json_util
from bson.raw_bson import RawBSONDocument

from tests.system import data, kit, servers
from tests.system.kit import Place, Shop, Urls

MONGODB = Place("mongo-document", "mongodb", "document")
FLAT = Place("mongo-flat", "mongodb", "flat")
EMBEDDED = Place("embedded", None, None)
COUNTS = {
    "restaurant": 2548,
    "countries-small": 248,
    "students": 200,
    "grades": 280,
    "products": 11,
}
# Canonical numbers: what an export calls 5 is the server's int, 5.5 a double.
OPTIONS = json_util.JSONOptions(tz_aware=True)


def documents(name: str) -> list[dict[str, Any]]:
    lines = data.need(f"{name}.json").read_text().splitlines()
    return [json_util.loads(line, json_options=OPTIONS) for line in lines if line.strip()]


@pytest.mark.parametrize(
    ("name", "last"),
    [*((name, MONGODB) for name in COUNTS), ("students", FLAT), ("products", FLAT)],
)
def test_a_collection_goes_and_comes_back(
    name: str, last: Place, tmp_path: Path, urls: Urls
) -> None:
    given = documents(name)
    assert len(given) == COUNTS[name]
    prefix = kit.fresh(f"collection {name}")
    url = urls("mongodb", "")
    with servers.connect_mongodb(url) as client:
        client.get_default_database()[f"{prefix} 1"].insert_many(given)
    shop = Shop(
        tmp_path, {MONGODB.store: url, FLAT.store: url, EMBEDDED.store: urls(None, "embedded")}
    )
    first, second = MONGODB.script(f"{prefix} 1"), EMBEDDED.script("two", ["/Thing/*/*"])
    third = last.script(f"{prefix} 3", ["/Thing/*/*"])
    shop.script(f"move = {kit.move('Thing', first, second)}")
    shop.script(f"move = {kit.move('Thing', second, third)}")
    for revision in shop.revisions:
        (found,) = kit.carry(shop, revision)
        assert found.equal == COUNTS[name]

    with shop.open() as project:
        old = project.stores.get(MONGODB.store).collection("Thing", MONGODB.at(f"{prefix} 1"))
        new = project.stores.get(last.store).collection(
            "Thing", last.at(f"{prefix} 3", ["/Thing/*/*"])
        )
        kit.assert_equal(kit.contents(old), kit.contents(new))
    raw: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)
    with servers.connect_mongodb(url) as client:
        came = client.get_default_database().get_collection(f"{prefix} 3", raw)
        lies = {bytes(_id(document)): document for document in came.find()}
    assert len(lies) == len(given)
    for document in given:
        expected = RawBSONDocument(encode(document))
        found_raw = lies[bytes(_id(expected))]
        # Byte-equal, field by field and in the same order: no side entry, nothing re-typed.
        assert fields(found_raw) == fields(expected)


def _id(document: RawBSONDocument) -> bytes:
    return encode({"_id": document["_id"]})


def fields(document: RawBSONDocument) -> list[tuple[str, bytes]]:
    return sorted((name, encode({"": value})) for name, value in document.items())
