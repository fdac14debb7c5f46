"""MongoDB exports of others to typed tables of Cassandra, and back to MongoDB."""

from __future__ import annotations

from pathlib import Path

import pytest
from bson import CodecOptions, encode
from bson.raw_bson import RawBSONDocument

from tests.contract.servers import cassandra
from tests.system import kit, servers
from tests.system.kit import Shop, Urls
from tests.system.test_collections import COUNTS, MONGODB, documents, fields

# What an aggregate of the export has in columns of its own; all else lies in ``more``, as JSON.
COLUMNS = {
    "restaurant": {"URL": "text", "name": "text", "outcode": "text", "address line 2": "text"},
    "countries-small": {
        "cca2": "text", "area": "double", "latlng": "frozen<list<double>>", "name": "json",
        "borders": "list<text>", "languages": "map<text, text>", "landlocked": "boolean",
    },
    "students": {"name": "text", "scores": "frozen<list<frozen<student_score>>>"},
    "grades": {
        "student_id": "int", "class_id": "int", "scores": "frozen<list<frozen<grade_score>>>"
    },
    "products": {"name": "text", "brand": "text", "price": "double", "available": "boolean"},
}  # fmt: skip
TYPES = {
    "student_score": {"score": "double", "type": "text"},
    "grade_score": {"type": "text", "score": "double"},
}


@pytest.mark.parametrize("name", COUNTS)
def test_a_collection_goes_to_cassandra_and_comes_back(
    name: str, tmp_path: Path, urls: Urls
) -> None:
    given = documents(name)
    prefix = kit.fresh("export")
    url = urls("mongodb", "")
    with servers.connect_mongodb(url) as client:
        client.get_default_database()[f"{prefix}_1"].insert_many(given)
    shop = Shop(tmp_path, {MONGODB.store: url, "wide": cassandra()})
    key = "int" if name == "students" else "text"  # text holds the digits of an ObjectId
    layout = (
        f"cassandra_table(key='_id', derived={{'_id': 'block key'}}, rest='more', types={TYPES}, "
        f"columns={ {'_id': key, **COLUMNS[name]} })"
    )
    first, third = MONGODB.script(f"{prefix}_1"), MONGODB.script(f"{prefix}_3")
    second = f"At('wide', {prefix!r}, layout={layout})"
    shop.script(f"move = {kit.move('Thing', first, second)}")
    shop.script(f"move = {kit.move('Thing', second, third)}")
    for revision in shop.revisions:
        (found,) = kit.carry(shop, revision)
        assert found.equal == COUNTS[name]

    with shop.open() as project:
        store = project.stores.get(MONGODB.store)
        old, new = (store.collection("Thing", MONGODB.at(f"{prefix}_{i}")) for i in (1, 3))
        kit.assert_equal(kit.contents(old), kit.contents(new))
    raw: CodecOptions[RawBSONDocument] = CodecOptions(RawBSONDocument)
    with servers.connect_mongodb(url) as client:
        came = client.get_default_database().get_collection(f"{prefix}_3", raw)
        lies = {encode({"_id": each["_id"]}): fields(each) for each in came.find()}
    # Byte-equal field by field, kinds of numbers included.
    assert lies == {
        encode({"_id": each["_id"]}): fields(RawBSONDocument(encode(each))) for each in given
    }
