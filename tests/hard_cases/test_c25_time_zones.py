"""C25: instants are instants in whatever zone a session was; local times stay local."""

from __future__ import annotations

import datetime as dt

from tests.hard_cases.bench import Bench, apply, plan
from tests.system import kit


def test_instants_and_local_times_of_mariadb(bench: Bench) -> None:
    table, docs, back = kit.fresh("c25"), kit.fresh("c25"), kit.fresh("c25")
    bench.sql(
        "maria",
        f"CREATE TABLE {table} (id int NOT NULL PRIMARY KEY, at timestamp(6) NULL, "
        "local datetime(6))",
        "SET time_zone = '+02:00'",
        f"INSERT INTO {table} VALUES (1, '2024-07-01 12:00:00', '2024-07-01 12:00:00'), "
        "(2, '2024-10-27 02:30:00', '2024-10-27 02:30:00')",
        "SET time_zone = '+01:00'",
        f"INSERT INTO {table} VALUES (3, '2024-01-01 12:00:00', '2024-01-01 12:00:00'), "
        "(4, '2024-10-27 02:30:00', '2024-10-27 02:30:00')",
    )
    columns = {"id": "int", "at": "timestamptz", "local": "timestamp"}
    middle = f"At('docs', {docs!r})"
    shop = bench.shop(
        (f"At('maria', tables({table!r}))", middle),
        (middle, f"At('pg', tables({back!r}, key='id', columns={columns!r}))"),
    )
    kit.carry(shop, "0001")

    def utc(*parts: int) -> dt.datetime:
        return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[misc,arg-type]

    instants = {
        1: utc(2024, 7, 1, 10), 2: utc(2024, 10, 27, 0, 30), 3: utc(2024, 1, 1, 11),
        4: utc(2024, 10, 27, 1, 30),
    }  # fmt: skip
    assert {d["_id"]: d["at"] for d in bench.docs[docs].find()} == instants
    locals_ = {d["_id"]: d["local"] for d in bench.docs[docs].find()}
    assert locals_[2] == locals_[4] == "2024-10-27T02:30:00"
    apply(shop, plan(shop, "0002"))
    rows = bench.sql("pg", f"SELECT id, at, local FROM {back}")
    assert {id: at for id, at, _ in rows} == instants
    assert {id: local.isoformat() for id, _, local in rows} == locals_
