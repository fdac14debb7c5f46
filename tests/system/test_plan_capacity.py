"""The capacity units that a plan tells are those that the server then counts."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from migrator import commands
from migrator.errors import Interrupted
from migrator.model.block import Address, Block, join
from migrator.model.move import At
from migrator.model.phase import Phase
from migrator.model.plan import Capacity, Plan
from migrator.model.value import Record, Value
from migrator.planning import planner
from migrator.ports import Collection
from migrator.render.plan import plan_lines
from migrator.stores.dynamodb import partitions
from migrator.stores.dynamodb.gathered_collection import GatheredCollection
from tests.system import kit
from tests.system.kit import Shop, Urls

LAYOUTS = [
    "item('id')",
    "item_collection('T#{v}', 'X#{id}#{entry}')",  # with a locator
]
SOURCE = At("emb", "t")


def thing(n: int) -> Record:
    rounds = [{"n": k, "moves": "y" * (k * n * 3)} for k in range(n % 5)]
    return {"id": f"t{n}", "v": n, "pad": "x" * (n * 37), "rounds": rounds}


def changed(n: int) -> Record:
    """As ``thing``, moved to another key where that holds ``v``, or longer, or both, or neither."""
    old = thing(n)
    return old | {"v": n + (n % 3 == 0), "pad": "x" * (n * 37 + n % 2)}


THINGS: list[tuple[Value, Record]] = [(f"t{n}", thing(n)) for n in range(18)]


@pytest.fixture
def shop(tmp_path: Path, urls: Urls) -> Shop:
    return Shop(tmp_path, {"emb": "embedded:///e.db", "there": urls("dynalite", "there")})


@contextmanager
def opened(shop: Shop, target: str) -> Iterator[commands.Project]:
    rules = ["/Thing/*/rounds[*]", "/Thing/*"]
    at = f"At('there', {kit.fresh('capacity')!r}, {rules}, {target})"
    shop.script(f"move = {kit.move('Thing', 'At(' + repr('emb') + ', ' + repr('t') + ')', at)}")
    shop.script("move = Move('Thing', target=At('emb', 'again'))")
    with shop.open() as project:
        kit.fill(source(project), THINGS)
        yield project


def source(project: commands.Project) -> Collection:
    return project.stores.get("emb").collection("Thing", SOURCE)


def spent(project: commands.Project) -> tuple[float, float]:
    wire = project.stores.get("there")._wire  # type: ignore[attr-defined]
    return wire.writes.spent, wire.reads.spent


def only(plan: Plan) -> Capacity:
    (found,) = plan.moves[0].capacity
    return found


def assert_as_counted(project: commands.Project, plan: Plan) -> None:
    """Writes to the unit. Of reads the server counts half for a scan, though it is consistent."""
    planned = only(plan)
    terms = commands.Terms(accept=["A107"])
    begun = spent(project)
    commands.apply(project, plan, until=Phase.BACKFILLED, terms=terms)
    copied = spent(project)
    assert copied[0] - begun[0] == planned.write
    assert copied[1] - begun[1] <= planned.read <= 2 * (copied[1] - begun[1]) + 5
    commands.apply(project, plan, terms=terms)
    verified = spent(project)
    assert verified[0] == copied[0]
    assert verified[1] - copied[1] <= planned.verify <= 2 * (verified[1] - copied[1]) + 5


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_run_takes_the_capacity_that_was_planned(shop: Shop, layout: str) -> None:
    with opened(shop, layout) as project:
        plan = commands.plan(project, "0001")
        assert only(plan).side == "target"
        assert only(plan).write >= len(THINGS)
        assert_as_counted(project, plan)
        commands.rollback(project, "0001")
        commands.abort(project, "0001", drop_target=False)
        # Once more with a target that holds most of it already.
        kit.fill(source(project), [(f"t{n}", changed(n)) for n in range(3, 21)])
        source(project).delete([Address("t1")])
        plan = commands.plan(project, "0001")
        (move,) = plan.moves
        assert (move.create, move.delete) == (3, 1)
        assert min(move.change, move.leave) > 3
        assert only(plan).survey > 0
        assert_as_counted(project, plan)
        commands.finish(project, "0001", keep_source=True)
        # And from there to elsewhere.
        plan = commands.plan(project, "0002")
        assert (only(plan).side, only(plan).write) == ("source", 0)
        assert_as_counted(project, plan)


def test_both_tables_of_a_split_take_what_was_planned(shop: Shop) -> None:
    with opened(shop, "item('id', split=500)") as project:
        plan = commands.plan(project, "0001")
        (told,) = [f.text for f in plan.findings if f.code == "dynamodb-split"]
        assert told.startswith("7 blocks are over the 500 bytes of an item")
        planned, begun = only(plan), spent(project)
        commands.apply(project, plan, until=Phase.BACKFILLED)
        copied = spent(project)
        assert copied[0] - begun[0] == planned.write
        assert copied[1] - begun[1] <= planned.read <= 2 * (copied[1] - begun[1]) + 5


def test_what_is_put_together_is_listed_and_then_read_by_its_keys(shop: Shop) -> None:
    at = At("there", kit.fresh("capacity"))
    group = 'Bucket("readings", by={"day": "day"}, keep="id")'
    ends = f"source=At('there', {at.collection!r}), target=At('emb', 'days')"
    shop.script(f"move = Move('Day', of='Reading', {ends}, evolve=[{group}])")
    with shop.open() as project:
        readings = project.stores.get("there").collection("Reading", at)
        kit.fill(readings, [(f"r{n}", {"day": f"{n // 7}", "pad": "x" * 2000}) for n in range(30)])
        plan = commands.plan(project, "0001")
        assert (only(plan).side, only(plan).survey > 0) == ("source", True)
        assert_as_counted(project, plan)


def test_an_archive_takes_capacity_too(shop: Shop) -> None:
    archive = f"At('there', {kit.fresh('capacity')!r})"
    change = "evolve=[Convert('pad', Integer), Drop('rounds', archive=True)]"
    ends = f"source=At('emb', 't'), target=At('emb', 'kept'), oversize='archive', {change}"
    shop.script(f"move = Move('Thing', {ends}, archive={archive})")
    with shop.open() as project:
        kit.fill(source(project), [*THINGS, ("fits", thing(0) | {"pad": "5"})])
        plan = commands.plan(project, "0001")
        assert (only(plan).side, only(plan).write >= len(THINGS) + 1) == ("archive", True)
        begun = spent(project)
        commands.apply(project, plan, terms=commands.Terms(accept=["E103"]))
        assert spent(project)[0] - begun[0] == only(plan).write


def test_capacity_that_makes_a_move_long_is_told_with_the_hours(shop: Shop) -> None:
    large: list[tuple[Value, Record]] = [(f"l{n}", {"pad": "x" * 79_000}) for n in range(50)]
    layout = "item('id', billing='provisioned', read_units=9, write_units=1)"
    with opened(shop, layout) as project:
        assert [f.text for f in commands.plan(project, "0001").findings if f.code == "W122"] == []
        kit.fill(source(project), large)
        plan = commands.plan(project, "0001")
        write = only(plan).write
        assert write > 77 * 50
        (told,) = [f.text for f in plan.findings if f.code == "W122"]
        assert f": {write:,} write units, at 1 a second, take 1.1 hours" in told
        assert plan.moves[0].seconds == write
        lines = [line.text for line in plan_lines(plan)]
        assert any(f"target: {write:,} write units to copy, " in line for line in lines)


def test_blocks_that_share_a_partition_key_are_copied_in_an_order_by_chance(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of pages, since many a page is less than what a partition takes at once."""
    monkeypatch.setattr(planner, "PAGE", 10)
    monkeypatch.setattr(partitions, "MANY", 20)
    random.seed(7)
    order: list[str] = []
    write = GatheredCollection.write

    def seen(self: GatheredCollection, blocks: Sequence[Block]) -> int:
        order.extend(str(join(block).value["day"]) for block in blocks)
        if len(order) == 60:
            raise Interrupted("stopped by the test")
        return write(self, blocks)

    monkeypatch.setattr(GatheredCollection, "write", seen)
    layout = "item_collection('DAY#{id[0]}', 'GAME#{id[1]}#{entry}')"
    with opened(shop, layout) as project:
        days = [(f"{n // 30}", f"t{n:03}") for n in range(120)]
        kit.fill(source(project), [([day, id], {"day": day}) for day, id in days])
        source(project).delete([Address(id) for id, _ in THINGS])
        plan = commands.plan(project, "0001")
        (move,) = plan.moves
        assert (move.shuffled, move.ranges) == (True, 12)
        assert "dynamodb-order" in {f.code for f in plan.findings}
        terms = commands.Terms(workers=1)
        with pytest.raises(Interrupted):
            commands.apply(project, plan, terms=terms)
        (found,) = commands.apply(project, plan, terms=terms).verified
        assert (found.equal, found.clean) == (120, True)
    assert len(order) == 130  # the page that was stopped came again
    turns = sum(one != other for one, other in pairwise(order))
    assert turns > 3, order  # in the order of the source it is three


def test_keys_that_no_blocks_share_are_copied_as_they_come(shop: Shop) -> None:
    with opened(shop, "item_collection('T#{id}')") as project:
        plan = commands.plan(project, "0001")
        assert not plan.moves[0].shuffled
        assert "dynamodb-order" not in {f.code for f in plan.findings}
