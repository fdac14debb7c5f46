"""Several classes into one physical table of DynamoDB, and apart again: moves of one revision."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from migrator import commands
from migrator.model.value import Record, Value
from tests.engine.regrouping import assert_done_as_planned, assert_holds, collection, put

TABLE = f"test_single_{os.getpid()}"
SCRIPT = '''"""Users and their orders, in one table."""

from migrator import At, Move, item_collection

revision, down_revision = "0001", None

moves = [
    Move("User", source=At("old", "users"),
         target=At("app", "TABLE", [], item_collection("USER#{id}", "PROFILE"))),
    Move("Order", source=At("old", "orders"),
         target=At("app", "TABLE", [], item_collection("USER#{user}", "ORDER#{date}#{id}"))),
]
'''
APART = '''"""Each in a collection of its own again."""

from migrator import At, Move

revision, down_revision = "0002", "0001"

moves = [
    Move("User", target=At("old", "users_again")),
    Move("Order", target=At("old", "orders_again")),
]
'''
USERS: dict[Value, Record] = {f"u{n}": {"id": f"u{n}", "n": n} for n in range(5)}
ORDERS: dict[Value, Record] = {
    f"o{n}": {"id": f"o{n}", "user": f"u{n % 5}", "date": f"2026-03-{n + 1:02}", "total": n}
    for n in range(20)
}


@pytest.fixture
def project(tmp_path: Path, dynamodb_url: str) -> Iterator[commands.Project]:
    (tmp_path / "migrations").mkdir()
    (tmp_path / "migrations" / "0001.py").write_text(SCRIPT.replace("TABLE", TABLE))
    (tmp_path / "migrations" / "0002.py").write_text(APART)
    (tmp_path / "migrator.toml").write_text(
        f'[env.test.stores.old]\nurl = "embedded:///old.db"\n'
        f'[env.test.stores.app]\nurl = "{dynamodb_url}"\n'
    )
    with commands.Project(tmp_path / "migrator.toml", "test") as opened:
        yield opened
        for route in opened.routes("0001"):
            route.target.drop()


def applied(project: commands.Project, revision: str) -> None:
    plan = commands.plan(project, revision, full=True)
    accepted = [finding.code for finding in plan.to_accept]
    commands.apply(project, plan, terms=commands.Terms(accept=accepted))
    assert_done_as_planned(project, plan)
    assert [(move.create, move.delete) for move in plan.moves] == [(5, 0), (20, 0)]


def test_two_classes_go_into_one_table_and_apart(project: commands.Project) -> None:
    put(collection(project, "old", "User", "users"), USERS)
    put(collection(project, "old", "Order", "orders"), ORDERS)
    applied(project, "0001")
    users, orders = (route.target for route in project.routes("0001"))
    assert_holds(users, USERS)
    assert_holds(orders, ORDERS)

    moved: Record = {**ORDERS["o3"], "date": "2026-04-01", "user": "u0"}
    put(orders, {"o3": moved, "new": {"id": "new", "user": "u1", "date": "2026-05-01"}})
    commands.rollback(project, "0001", carry_back=True)
    source = collection(project, "old", "Order", "orders")
    after = {**ORDERS, "o3": moved, "new": {"id": "new", "user": "u1", "date": "2026-05-01"}}
    assert_holds(source, after)
    commands.apply(project, commands.frozen_plan(project.control.run("0001")))
    commands.finish(project, "0001", keep_source=False)

    plan = commands.plan(project, "0002", full=True)
    commands.apply(project, plan, terms=commands.Terms(accept=[f.code for f in plan.to_accept]))
    assert_done_as_planned(project, plan)
    assert_holds(collection(project, "old", "User", "users_again"), USERS)
    assert_holds(collection(project, "old", "Order", "orders_again"), after)
    commands.finish(project, "0002", keep_source=False)
    assert not any(
        route.source.exists() and route.source.count() for route in project.routes("0002")
    )
