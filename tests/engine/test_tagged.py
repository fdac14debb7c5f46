"""Whether values may travel tagged is the move's to say: the plan counts, the run obeys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path

import pytest

from migrator import commands
from migrator.errors import DoesNotFit, Waiting
from migrator.model.block import Aggregate, cut
from migrator.model.move import At
from migrator.model.value import Record, Ref, Value
from tests.engine.games import assert_equal, contents

# Of SQLite's JSON: a decimal, bytes and references are tagged, a set is a tagged array.
SETTINGS = """
[env.test.stores.old]
url = "embedded:///old.db"
[env.test.stores.new]
url = "sqlite:///new.db"
"""
SCRIPT = '''"""Prices."""

from migrator import At, Move

revision, down_revision = "0001", None

move = Move("Item", source=At("old", "items"), target=At("new", "items", layout="entries"), {more})
'''
PLAIN: Record = {"name": "pen", "lines": [{"n": 1}, {"n": 2}]}
PRICED: Record = {"name": "pen", "lines": [{"n": Decimal("1.50")}, {"n": Decimal("2.50")}, {}]}
OWNED: Record = {"name": "ink", "owner": {"is": Ref("Player", "mary")}}
ITEMS: dict[Value, Record] = {"plain": PLAIN, "priced": PRICED, "owned": OWNED}

Open = Callable[[str], commands.Project]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    with ExitStack() as stack:

        def open_(more: str) -> commands.Project:
            (tmp_path / "migrations").mkdir()
            (tmp_path / "migrations" / "0001_it.py").write_text(SCRIPT.format(more=more))
            (tmp_path / "migrator.toml").write_text(SETTINGS)
            project = stack.enter_context(commands.Project(tmp_path / "migrator.toml", "test"))
            put(project, ITEMS)
            return project

        yield open_


def put(project: commands.Project, items: dict[Value, Record]) -> None:
    at = At("old", "items")
    source = project.stores.get("old").collection("Item", at)
    source.create()
    source.write([cut(Aggregate(id, value), at.rules("Item")) for id, value in items.items()])


def held(project: commands.Project) -> dict[Value, Record]:
    at = At("new", "items", layout="entries")
    return contents(project.stores.get("new").collection("Item", at))


def test_by_default_values_travel_tagged_and_the_plan_counts_them(opened: Open) -> None:
    project = opened("")
    plan = commands.plan(project, "0001")
    assert {f.code for f in plan.errors + plan.to_accept} == set()
    tagged = {(k.path, k.kind): k.count for k in plan.moves[0].kinds if k.how == "tagged"}
    assert tagged == {("lines[*].n", "decimal"): 2, ("owner.is", "reference"): 1}
    commands.apply(project, plan)
    assert_equal(held(project), ITEMS)


@pytest.mark.parametrize(
    ("tagged", "told"),
    [
        ('"refuse"', {"lines[*].n": "Item:priced", "owner.is": "Item:owned"}),
        ("[]", {"lines[*].n": "Item:priced", "owner.is": "Item:owned"}),
        ('["lines[*].n"]', {"owner.is": "Item:owned"}),
        ('["lines[*]"]', {"owner.is": "Item:owned"}),
        ('["owner.*"]', {"lines[*].n": "Item:priced"}),
        ('["owner.is.not"]', {"lines[*].n": "Item:priced", "owner.is": "Item:owned"}),
        ('["lines", "owner"]', {}),
    ],
)
def test_where_they_may_not_they_are_errors_of_the_plan(
    opened: Open, tagged: str, told: dict[str, str]
) -> None:
    plan = commands.plan(opened(f"tagged={tagged}"), "0001")
    assert {f.code for f in plan.errors} <= {"E120"}
    assert {f.path: key for f in plan.errors for key in f.keys} == told
    assert all("would travel tagged to new:items" in f.text for f in plan.errors)
    # The values are counted all the same.
    assert sum(k.count for k in plan.moves[0].kinds if k.how == "tagged") == 3
    assert plan.moves[0].create == 3 - len(told)


def test_the_run_stops_at_one_that_came_after_the_plan(opened: Open) -> None:
    project = opened('tagged=["lines", "owner"]')
    plan = commands.plan(project, "0001")
    put(project, {"late": {"name": Decimal("1.10")}})
    with pytest.raises(DoesNotFit, match="decimal would travel tagged") as caught:
        commands.apply(project, plan)
    assert (caught.value.path, "Item:late" in caught.value.where) == ("name", True)
    assert "late" not in held(project)


def test_the_run_sets_aside_what_the_plan_told(opened: Open) -> None:
    project = opened('tagged=["lines"], oversize="quarantine"')
    plan = commands.plan(project, "0001")
    (finding,) = plan.to_accept
    assert (finding.code, finding.keys) == ("E120", ["Item:owned"])
    terms = commands.Terms(accept=["E120"])
    with pytest.raises(Waiting, match="Item:owned"):
        commands.apply(project, plan, terms=terms)
    assert_equal(held(project), {"plain": PLAIN, "priced": PRICED})
    # The same question decides whether a mended one may go.
    assert commands.retry_quarantined(project, "0001") == (0, 1)
    put(project, {"owned": PLAIN})
    assert commands.retry_quarantined(project, "0001") == (1, 0)
    (found,) = commands.apply(project, plan, terms=terms).verified
    assert (found.equal, found.quarantined, found.clean) == (3, 0, True)
    assert_equal(held(project), {"plain": PLAIN, "priced": PRICED, "owned": PLAIN})


def test_the_run_archives_what_the_plan_told(opened: Open) -> None:
    project = opened('tagged="refuse", oversize="archive", archive=At("old", "left")')
    plan = commands.plan(project, "0001")
    archive = plan.moves[0].archive
    assert archive is not None
    assert (archive.blocks, plan.moves[0].create) == (2, 1)
    (found,) = commands.apply(project, plan, terms=commands.Terms(accept=["E120"])).verified
    assert (found.equal, found.archived, found.clean) == (1, 2, True)
    left = project.stores.get("old").collection("Item", At("old", "left"))
    assert_equal(contents(left), {"priced": PRICED, "owned": OWNED})
