"""Northwind: blanks in names, composite keys, blobs; to MongoDB and back into an empty file."""

from __future__ import annotations

from pathlib import Path

from tests.system import catalogues, data, kit, servers
from tests.system.kit import Place, Shop, Urls

CLASSES = {
    "Category": "tables('Categories'{like})",
    "Supplier": "tables('Suppliers'{like})",
    "Shipper": "tables('Shippers'{like})",
    "Demographic": "tables('CustomerDemographics'{like})",
    "Customer": "tables('Customers'{like})",
    "CustomerDemo": "tables('CustomerCustomerDemo'{like})",
    "Region": "tables('Regions'{like}, Territories=tables('Territories'{like}))",
    "Employee": "tables('Employees'{like}, "
    "Territories=tables('EmployeeTerritories'{like}, value='TerritoryID'))",
    "Product": "tables('Products'{like})",
    "Order": "tables('Orders'{like}, children={{'Order Details': tables('Order Details'{like})}})",
}
VIA = Place("mongo-document", "mongodb", "document")
CHEVALIER = {
    "_id": 10248,
    "OrderID": 10248,
    "CustomerID": "VINET",
    "EmployeeID": 5,
    "OrderDate": "1996-07-04 00:00:00.000",
    "RequiredDate": "1996-08-01 00:00:00.000",
    "ShippedDate": "1996-07-16 00:00:00.000",
    "ShipVia": 3,
    "Freight": 32.38,
    "ShipName": "Vins et alcools Chevalier",
    "ShipAddress": "59 rue de l-Abbaye",
    "ShipCity": "Reims",
    "ShipRegion": None,
    "ShipPostalCode": "51100",
    "ShipCountry": "France",
    "Order Details": [
        {"ProductID": 11, "UnitPrice": 14, "Quantity": 12, "Discount": 0.0},
        {"ProductID": 42, "UnitPrice": 9.8, "Quantity": 10, "Discount": 0.0},
        {"ProductID": 72, "UnitPrice": 34.8, "Quantity": 5, "Discount": 0.0},
    ],
}


def test_all_tables_go_and_come_back(tmp_path: Path, urls: Urls) -> None:
    data.load_northwind(tmp_path / "northwind.db")
    before = catalogues.all_rows("sqlite", str(tmp_path / "northwind.db"))
    prefix = kit.fresh("northwind")
    stores = {"shop": "sqlite:///northwind.db", "back": "sqlite:///back.db"}
    shop = Shop(tmp_path, {**stores, VIA.store: urls(VIA.server, VIA.store)})
    there, back = [], []
    for cls, spec in CLASSES.items():
        at = VIA.script(f"{prefix} {cls}")
        there.append(kit.move(cls, f"At('shop', {spec.format(like='')})", at))
        like = ", like='shop'"
        back.append(kit.move(cls, at, f"At('back', {spec.format(like=like)})"))
    for moves in there, back:
        shop.script(f"moves = [{', '.join(moves)}]")

    kit.carry(shop, shop.revisions[0])
    check_documents(urls("mongodb", ""), prefix)
    kit.carry(shop, shop.revisions[1])

    after = catalogues.all_rows("sqlite", str(tmp_path / "back.db"))
    assert sum(map(len, after.values())) == 3310
    for table, lines in before.items():
        assert after[table] == lines, table
    made = catalogues.describe_sqlite(str(tmp_path / "back.db"))
    for part, described in catalogues.describe_sqlite(str(tmp_path / "northwind.db")).items():
        assert made[part] == described, part


def check_documents(url: str, prefix: str) -> None:
    with servers.connect_mongodb(url) as client:
        database = client.get_default_database()
        orders, categories = database[f"{prefix} Order"], database[f"{prefix} Category"]
        (found,) = orders.find({"_id": 10248})
        found.pop("_migrator", None)
        assert found == CHEVALIER
        kinds = {
            "Freight": "double",
            "Order Details.UnitPrice": "int",
            "Order Details.Discount": "double",
            "ShipRegion": "null",
        }
        for path, kind in kinds.items():
            query = {"$and": [{"_id": 10248}, {path: {"$type": kind}}]}
            assert orders.count_documents(query) == 1, f"{path} is no {kind}"
        assert categories.count_documents({"Picture": {"$type": "binData"}}) == 8
        assert database[f"{prefix} Employee"].find_one({"_id": 1}, {"Territories": 1}) == {
            "_id": 1,
            "Territories": ["06897", "19713"],
        }
