"""Chinook as query tables of Cassandra (invoices by month, tracks by genre), and back again."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.contract.servers import cassandra, plain_cassandra
from tests.system import catalogues, data, kit, servers
from tests.system.kit import Shop

INVOICES = """cassandra_table(
    key=["customer_id", "month"], clustering="invoice_id", id="invoice_id", nulls="null",
    derived={"month": "month of invoice_date"},
    types={"invoice_line": {
        "invoice_line_id": "int", "track_id": "int", "unit_price": "decimal", "quantity": "int"}},
    columns={
        "invoice_id": "int", "customer_id": "int", "invoice_date": "timestamp local",
        "billing_address": "text", "billing_city": "text", "billing_state": "text",
        "billing_country": "text", "billing_postal_code": "text", "total": "decimal",
        "lines": "frozen<list<frozen<invoice_line>>>"},
    projections=[projection("invoices_by_country", key="billing_country",
                            clustering=["invoice_date desc", "invoice_id"], columns="total")])"""
TRACKS = """cassandra_table(
    key="genre_id", clustering=["album_id", "track_id"], id="track_id", nulls="null",
    columns={
        "track_id": "int", "name": "text", "album_id": "int", "media_type_id": "int",
        "genre_id": "int", "composer": "text", "milliseconds": "int", "bytes": "int",
        "unit_price": "decimal"},
    indexes={"composer": "sai"})"""
TABLES = ("invoice", "invoice_line", "track")


def moves(invoices: tuple[str, str], tracks: tuple[str, str]) -> str:
    return f"moves = [{kit.move('Invoice', *invoices)}, {kit.move('Track', *tracks)}]"


def spec(like: str = "") -> tuple[str, str]:
    """The relational tables of both classes in the words of a script."""
    store, made = ("back", f", like={like!r}") if like else ("shop", "")
    lines = f"lines=tables('invoice_line'{made})"
    return (
        f"At({store!r}, tables('invoice'{made}, {lines}))",
        f"At({store!r}, tables('track'{made}))",
    )


def test_query_tables_and_back(tmp_path: Path, database_url: servers.MakeDatabase) -> None:
    data.need("chinook.postgresql.sql")
    source = database_url("postgresql", "chinook_wide")
    data.load_postgresql(source)
    target = database_url("postgresql", "chinook_wide_back")
    shop = Shop(tmp_path, {"shop": source, "wide": cassandra(), "back": target})
    invoices, tracks = kit.fresh("invoices"), kit.fresh("tracks")
    there = (
        f"At('wide', {invoices!r}, layout={INVOICES})",
        f"At('wide', {tracks!r}, layout={TRACKS})",
    )
    shop.script(moves(*zip(spec(), there, strict=True)))
    shop.script(moves(*zip(there, spec("shop"), strict=True)))
    before = catalogues.all_rows("postgresql", source)
    found = kit.carry(shop, shop.revisions[0])
    assert [each.equal for each in found] == [412, 3503]
    check_by_the_plain_driver(invoices, tracks)
    kit.carry(shop, shop.revisions[1])
    after = catalogues.all_rows("postgresql", target)
    assert {table: after[table] for table in TABLES} == {table: before[table] for table in TABLES}
    made, given = (catalogues.describe("postgresql", url)["columns"] for url in (target, source))
    assert made == [column for column in given if column[0] in TABLES]


def check_by_the_plain_driver(invoices: str, tracks: str) -> None:
    """The queries that the tables are made for, against what a person expects."""
    with plain_cassandra() as session:
        check_invoices(session, invoices)
        check_tracks(session, tracks)


def check_invoices(session: Any, table: str) -> None:
    (invoice,) = session.execute(
        f"SELECT * FROM {table} WHERE customer_id = 2 AND month = '2021-02'"
    )
    assert (invoice.invoice_id, str(invoice.invoice_date)) == (12, "2021-02-11 00:00:00")
    assert (invoice.total, invoice.billing_city) == (Decimal("13.86"), "Stuttgart")
    assert invoice.billing_state is None
    lines = [(x.invoice_line_id, x.track_id, x.unit_price, x.quantity) for x in invoice.lines]
    assert lines == [(60 + i, 331 + 9 * i, Decimal("0.99"), 1) for i in range(14)]
    months = session.execute(f"SELECT month FROM {table} WHERE customer_id = 2 ALLOW FILTERING")
    assert sorted(row.month for row in months) == [
        "2021-01", "2021-02", "2021-10", "2023-05", "2023-08", "2023-11", "2024-07"
    ]  # fmt: skip
    germany = list(
        session.execute("SELECT * FROM invoices_by_country WHERE billing_country = 'Germany'")
    )
    assert len(germany) == 28
    dates = [row.invoice_date for row in germany]
    assert dates == sorted(dates, reverse=True)
    assert sum(row.total for row in germany) == Decimal("156.48")
    count = session.execute(f"SELECT count(*) FROM {table}_locator").one()[0]
    assert count == 412


def check_tracks(session: Any, table: str) -> None:
    jazz = list(session.execute(f"SELECT * FROM {table} WHERE genre_id = 2"))
    assert len(jazz) == 130
    assert {str(row.unit_price) for row in jazz} == {"0.99"}
    places = [(row.album_id, row.track_id) for row in jazz]
    assert places == sorted(places)
    by_composer = session.execute(f"SELECT track_id FROM {table} WHERE composer = 'Miles Davis'")
    assert len(list(by_composer)) == 23
