"""Chinook as one table of DynamoDB that all its classes share, and tables of PostgreSQL again."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import boto3

from tests.contract.servers import dynamodb
from tests.system import catalogues, data, kit, servers
from tests.system.kit import Shop
from tests.system.test_chinook import CLASSES, INVOICES, ROWS

Item = dict[str, Any]

COMMON = "indexes=[index('gsi1', 'gsi1pk', 'gsi1sk')], class_attribute='type'"
EAO = "/{cls}/*"
# A class: its tables, the rules that cut it into entries, and where these lie. The one index is
# shared as well: customers and invoices by country, employees by their chief.
DESIGN = {
    "Genre": (CLASSES["Genre"], EAO, "'GENRE#{id}', 'GENRE'"),
    "MediaType": (CLASSES["MediaType"], EAO, "'MEDIA#{id}', 'MEDIA'"),
    "Playlist": (CLASSES["Playlist"], EAO, "'PLAYLIST#{id}', 'PLAYLIST'"),
    "Employee": (
        CLASSES["Employee"], EAO,
        "'EMPLOYEE#{id}', 'PROFILE', "
        "attributes={'gsi1pk': 'CHIEF#{reports_to}', 'gsi1sk': 'EMPLOYEE#{last_name}'}",
    ),
    "Artist": (
        CLASSES["Artist"], "/{cls}/*/albums[*].tracks[*] /{cls}/*/albums[*] /{cls}/*",
        "'ARTIST#{id}', entries={'albums[*].tracks[*]': 'ALBUM#{index:03}#TRACK#{index2:03}', "
        "'albums[*]': 'ALBUM#{index:03}', '': 'ARTIST'}",
    ),
    "Customer": (
        "tables('customer'{like})", EAO,
        "'CUSTOMER#{id}', 'PROFILE', "
        "attributes={'gsi1pk': 'COUNTRY#{country}', 'gsi1sk': 'CUSTOMER#{id:05}'}",
    ),
    "Invoice": (
        "tables('invoice'{like}, lines=tables('invoice_line'{like}))",
        "/{cls}/*/lines[*] /{cls}/*",
        "'CUSTOMER#{customer_id}', 'INVOICE#{invoice_date}#{id}#{entry}', "
        "entries={'lines[*]': 'LINE#{index:02}', '': 'HEAD'}, attributes={"
        "'gsi1pk': 'COUNTRY#{billing_country}', 'gsi1sk': 'INVOICE#{invoice_date}#{id}'}",
    ),
}  # fmt: skip
# Blocks of each class, and their items: artists with albums and tracks, invoices with lines.
BLOCKS = {"Genre": 25, "MediaType": 5, "Playlist": 18, "Employee": 8, "Artist": 275,
          "Customer": 59, "Invoice": 412}  # fmt: skip
ITEMS = {**BLOCKS, "Artist": 275 + 347 + 3503, "Invoice": 412 + 2240}


def moves(table: str, store: str, *, back: bool) -> str:
    lines = []
    for cls, (tables, rules, layout) in DESIGN.items():
        relational = tables.format(like=", like='shop'" if back else "")
        cut = rules.format(cls=cls).split()
        ends = [
            f"At({store!r}, {relational})",
            f"At('app', {table!r}, {cut!r}, item_collection({layout}, {COMMON}))",
        ]
        if back:
            ends.reverse()
        lines.append(f"    {kit.move(cls, *ends)},\n")
    return f"moves = [\n{''.join(lines)}]"


def test_one_table_and_back(tmp_path: Path, database_url: servers.MakeDatabase) -> None:
    data.need("chinook.postgresql.sql")
    source = database_url("postgresql", "chinook_items")
    data.load_postgresql(source)
    target = database_url("postgresql", "chinook_items_back")
    shop = Shop(tmp_path, {"shop": source, "app": dynamodb("dynalite"), "back": target})
    table = kit.fresh("chinook")
    shop.script(moves(table, "shop", back=False))
    shop.script(moves(table, "back", back=True))
    before = catalogues.all_rows("postgresql", source)
    assert sum(map(len, before.values())) == ROWS
    found = kit.carry(shop, shop.revisions[0])
    assert [each.equal for each in found] == list(BLOCKS.values())
    check_by_the_plain_driver(Plain(table))
    kit.carry(shop, shop.revisions[1])
    assert catalogues.all_rows("postgresql", target) == before
    made, given = (catalogues.describe("postgresql", url) for url in (target, source))
    assert made == given


# ---------------------------------------------------------------- what lies there


class Plain:
    """The table by boto3 alone: items as the service writes them, type by type."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.client: Any = boto3.client(
            "dynamodb",
            endpoint_url=f"http://{urlsplit(dynamodb('dynalite')).netloc}",
            region_name="eu-west-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )

    def all(self, operation: str, **request: Any) -> list[Item]:
        pages = self.client.get_paginator(operation).paginate(TableName=self.table, **request)
        return [item for page in pages for item in page["Items"]]

    def partition(self, pk: str, beginning: str = "") -> list[Item]:
        condition, values = "pk = :p", {":p": {"S": pk}}
        if beginning:
            condition += " AND begins_with(sk, :s)"
            values[":s"] = {"S": beginning}
        return self.all("query", KeyConditionExpression=condition, ExpressionAttributeValues=values)

    def by_index(self, pk: str) -> list[Item]:
        return self.all(
            "query", IndexName="gsi1", KeyConditionExpression="gsi1pk = :p",
            ExpressionAttributeValues={":p": {"S": pk}},
        )  # fmt: skip


def check_by_the_plain_driver(plain: Plain) -> None:
    described = plain.client.describe_table(TableName=plain.table)["Table"]
    assert described["KeySchema"] == keys("pk", "sk")
    (index,) = described["GlobalSecondaryIndexes"]
    assert (index["KeySchema"], index["Projection"]) == (
        keys("gsi1pk", "gsi1sk"), {"ProjectionType": "ALL"}
    )  # fmt: skip
    assert Counter(item["type"]["S"] for item in plain.all("scan")) == ITEMS
    check_single_items(plain)
    check_artist(plain)
    check_customer(plain)
    check_index(plain)


def keys(hash_: str, range_: str) -> list[dict[str, str]]:
    return [
        {"AttributeName": hash_, "KeyType": "HASH"},
        {"AttributeName": range_, "KeyType": "RANGE"},
    ]


def text(value: str) -> Item:
    return {"S": value}


def number(value: float | str) -> Item:
    return {"N": str(value)}


NULL: Item = {"NULL": True}
CENTS = number("0.99")


def seen(items: list[Item]) -> list[Item]:
    """Items as an application sees them, which passes by the attribute of ours."""
    return [{n: av for n, av in item.items() if n != "_migrator"} for item in items]


def check_single_items(plain: Plain) -> None:
    (adams,) = plain.partition("EMPLOYEE#1")
    # What an N or an S can't say by itself; nothing else is noted.
    notes = adams["_migrator"]["M"]
    assert notes["tags"] == {"M": {
        name: {"M": {".": text("local timestamp")}} for name in ("birth_date", "hire_date")
    }}  # fmt: skip
    assert notes["id"] == text("integer")
    assert seen([adams]) == [{
        "pk": text("EMPLOYEE#1"), "sk": text("PROFILE"), "type": text("Employee"),
        "gsi1sk": text("EMPLOYEE#Adams"),  # nobody's to report to: in no index
        "employee_id": number(1), "last_name": text("Adams"), "first_name": text("Andrew"),
        "title": text("General Manager"), "reports_to": NULL,
        "birth_date": text("1962-02-18T00:00:00"), "hire_date": text("2002-08-14T00:00:00"),
        "address": text("11120 Jasper Ave NW"), "city": text("Edmonton"), "state": text("AB"),
        "country": text("Canada"), "postal_code": text("T5K 2N1"),
        "phone": text("+1 (780) 428-9482"), "fax": text("+1 (780) 428-3457"),
        "email": text("andrew@chinookcorp.com"),
    }]  # fmt: skip
    assert seen(plain.partition("PLAYLIST#9")) == [{
        "pk": text("PLAYLIST#9"), "sk": text("PLAYLIST"), "type": text("Playlist"),
        "playlist_id": number(9), "name": text("Music Videos"), "tracks": {"L": [number(3402)]},
    }]  # fmt: skip
    assert seen(plain.partition("GENRE#2")) == [{
        "pk": text("GENRE#2"), "sk": text("GENRE"), "type": text("Genre"),
        "genre_id": number(2), "name": text("Jazz"),
    }]  # fmt: skip


def check_artist(plain: Plain) -> None:
    """An artist with all albums and tracks is one query, in this order."""

    def album(place: str, id: int, title: str) -> Item:
        return {
            "pk": text("ARTIST#2"), "sk": text(place), "type": text("Artist"),
            "album_id": number(id), "title": text(title),
        }  # fmt: skip

    def track(place: str, id: int, name: str, by: str, milliseconds: int, size: int) -> Item:
        return {
            "pk": text("ARTIST#2"), "sk": text(place), "type": text("Artist"),
            "track_id": number(id), "name": text(name), "media_type_id": number(2),
            "genre_id": number(1), "composer": text(by), "milliseconds": number(milliseconds),
            "bytes": number(size), "unit_price": CENTS,
        }  # fmt: skip

    assert seen(plain.partition("ARTIST#2")) == [
        album("ALBUM#000", 2, "Balls to the Wall"),
        track("ALBUM#000#TRACK#000", 2, "Balls to the Wall",
              "U. Dirkschneider, W. Hoffmann, H. Frank, P. Baltes, S. Kaufmann, G. Hoffmann",
              342562, 5510424),
        album("ALBUM#001", 3, "Restless and Wild"),
        track("ALBUM#001#TRACK#000", 3, "Fast As a Shark",
              "F. Baltes, S. Kaufman, U. Dirkscneider & W. Hoffman", 230619, 3990994),
        track("ALBUM#001#TRACK#001", 4, "Restless and Wild",
              "F. Baltes, R.A. Smith-Diesel, S. Kaufman, U. Dirkscneider & W. Hoffman",
              252051, 4331779),
        track("ALBUM#001#TRACK#002", 5, "Princess of the Dawn", "Deaffy & R.A. Smith-Diesel",
              375418, 6290521),
        {"pk": text("ARTIST#2"), "sk": text("ARTIST"), "type": text("Artist"),
         "artist_id": number(2), "name": text("Accept")},
    ]  # fmt: skip
    # Without albums there is no item for one, and the empty list stays with the rest.
    assert seen(plain.partition("ARTIST#25")) == [{
        "pk": text("ARTIST#25"), "sk": text("ARTIST"), "type": text("Artist"),
        "artist_id": number(25), "name": text("Milton Nascimento & Bebeto"), "albums": {"L": []},
    }]  # fmt: skip


def check_customer(plain: Plain) -> None:
    """A customer's partition: invoices by date, each with its lines, then the profile."""
    *invoices, profile = plain.partition("CUSTOMER#2")
    assert seen([profile]) == [{
        "pk": text("CUSTOMER#2"), "sk": text("PROFILE"), "type": text("Customer"),
        "gsi1pk": text("COUNTRY#Germany"), "gsi1sk": text("CUSTOMER#00002"),
        "customer_id": number(2), "first_name": text("Leonie"), "last_name": text("Köhler"),
        "company": NULL, "address": text("Theodor-Heuss-Straße 34"), "city": text("Stuttgart"),
        "state": NULL, "country": text("Germany"), "postal_code": text("70174"),
        "phone": text("+49 0711 2842222"), "fax": NULL, "email": text("leonekohler@surfeu.de"),
        "support_rep_id": number(5),
    }]  # fmt: skip
    assert [item["sk"]["S"] for item in invoices] == list(
        itertools.chain.from_iterable(
            (f"INVOICE#{date}#{id}#HEAD", *(f"INVOICE#{date}#{id}#LINE#{n:02}" for n in range(of)))
            for id, date, _, _, _, _, of in INVOICES
        )
    )
    head, *lines = february = plain.partition("CUSTOMER#2", "INVOICE#2021-02")
    assert seen([head]) == [{
        "pk": text("CUSTOMER#2"), "sk": text("INVOICE#2021-02-11T00:00:00#12#HEAD"),
        "type": text("Invoice"), "gsi1pk": text("COUNTRY#Germany"),
        "gsi1sk": text("INVOICE#2021-02-11T00:00:00#12"),
        "invoice_id": number(12), "customer_id": number(2),
        "invoice_date": text("2021-02-11T00:00:00"),
        "billing_address": text("Theodor-Heuss-Straße 34"), "billing_city": text("Stuttgart"),
        "billing_state": NULL, "billing_country": text("Germany"),
        "billing_postal_code": text("70174"), "total": number("13.86"),
    }]  # fmt: skip
    assert seen(lines) == [
        {
            "pk": text("CUSTOMER#2"), "sk": text(f"INVOICE#2021-02-11T00:00:00#12#LINE#{i:02}"),
            "type": text("Invoice"), "invoice_line_id": number(60 + i),
            "track_id": number(331 + 9 * i), "unit_price": CENTS, "quantity": number(1),
        }
        for i in range(14)
    ]  # fmt: skip
    assert len(february) == 15


def check_index(plain: Plain) -> None:
    """What the index answers: a country's customers and invoices, and who reports to whom."""
    germany = [(x["gsi1sk"]["S"], x["type"]["S"]) for x in plain.by_index("COUNTRY#Germany")]
    assert germany[:4] == [(f"CUSTOMER#{id:05}", "Customer") for id in (2, 36, 37, 38)]
    assert len(germany) == 4 + 28
    assert germany == sorted(germany)
    assert germany[4] == ("INVOICE#2021-01-01T00:00:00#1", "Invoice")
    chiefs = [
        [item["last_name"]["S"] for item in plain.by_index(f"CHIEF#{id}")] for id in (1, 2, 6)
    ]
    assert chiefs == [["Edwards", "Mitchell"], ["Johnson", "Park", "Peacock"], ["Callahan", "King"]]
