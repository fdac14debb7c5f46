"""C24: rare, null-first and mixed fields: nothing depends on the first documents."""

from __future__ import annotations

import datetime as dt

from migrator.model.move import At
from migrator.model.value import Record, Value
from tests.hard_cases.bench import Bench, apply, plan
from tests.system import kit

COUNT = 4000


def things() -> list[tuple[Value, Record]]:
    found: list[tuple[Value, Record]] = []
    for n in range(COUNT):
        thing: Record = {
            "id": n,
            "endDate": None if n < 3000 else dt.date(2024, 1, 1 + n % 28),
            "code": n if n % 2 else str(n),
            "addr": "Rome" if n % 5 else {"city": "Rome"},
        }
        if n >= COUNT - 10:
            thing["vip"] = True
        found.append((n, thing))
    return found


def test_entries_take_all_as_it_is_and_the_plan_tells(bench: Bench) -> None:
    name = kit.fresh("c24")
    shop = bench.shop(("At('emb', 'c24')", f"At('pg', {name!r}, ['/Thing/*/*'], 'entries')"))
    bench.fill(shop, At("emb", "c24"), things())
    made = plan(shop)
    mixed = {f.path: f.text for f in made.findings if f.code == "W114"}
    assert mixed.keys() == {"code", "addr"}
    assert "int32 in 2,000" in mixed["code"]
    assert "record in 800" in mixed["addr"]
    (found,) = apply(shop, made)
    assert found.equal == COUNT


def test_tables_refuse_what_no_column_holds(bench: Bench) -> None:
    table = kit.fresh("c24")
    columns = 'id int PRIMARY KEY, "endDate" date, code int, addr varchar(9), vip boolean'
    bench.sql("pg", f"CREATE TABLE {table} ({columns})")
    shop = bench.shop(("At('emb', 'c24')", f"At('pg', tables({table!r}, nulls='absent'))"))
    bench.fill(shop, At("emb", "c24"), things())
    errors = plan(shop).errors
    assert errors
    assert sum(f.count for f in errors) >= COUNT // 2
    assert {f.path for f in errors} <= {"code", "addr", "endDate"}


def test_tables_told_from_all_the_data_have_every_field(bench: Bench) -> None:
    """The rare field and the one that is null at first have columns; what is of another kind
    than most is told by path and key."""
    table = kit.fresh("c24")
    target = f"At('pg', tables({table!r}, nulls='absent'))"
    shop = bench.shop(kit.move("Thing", "At('emb', 'c24')", target, oversize="quarantine"))
    given = [(k, {f: x for f, x in t.items() if x is not None}) for k, t in things()]
    bench.fill(shop, At("emb", "c24"), given)
    made = plan(shop)
    tables = made.moves[0].tables
    assert tables is not None
    assert tables.columns["endDate"] == "date"
    assert tables.columns["vip"] == "boolean"
    told = {f.path: f.count for f in made.to_accept}
    # Half of the codes are text, of the rest those whose addr is a record are told by that path.
    assert sum(told.values()) == sum(
        type(t["code"]) is not (int if tables.columns["code"] == "integer" else str)
        or type(t["addr"]) is dict
        for _, t in given
    )
