"""Limits are findings of the plan, with path, count and sample keys, and no surprise later."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

import pytest

from migrator import commands
from migrator.model.move import At
from migrator.model.plan import Finding, MovePlan, Plan
from migrator.model.value import Int64, Record, Value
from migrator.planning.survey import SAMPLE_SIZE
from migrator.planning.tally import SAMPLE_KEYS, Issues
from tests.system import kit
from tests.system.kit import Shop, Urls

Things = Iterable[tuple[Value, Record]]
FINE: list[tuple[Value, Record]] = [(f"fine{n}", {"id": f"fine{n}", "v": n}) for n in range(20)]


def nest(levels: int) -> Value:
    value: Value = 1
    for _ in range(levels):
        value = [value]
    return value


def planned(tmp_path: Path, urls: Urls, server: str, target: str, things: Things) -> Plan:
    shop = Shop(tmp_path, {"emb": urls(None, "embedded"), "there": urls(server, "there")})
    shop.script(f"move = {kit.move('Thing', 'At(' + repr('emb') + ', ' + repr('t') + ')', target)}")
    with shop.open() as opened:
        kit.fill(opened.stores.get("emb").collection("Thing", At("emb", "t")), things)
        return commands.plan(opened, "0001")


def one(plan: Plan) -> Finding:
    (found,) = plan.errors
    return found


def entries() -> str:
    return f"At('there', {kit.fresh('limit')!r}, layout='entries')"


@pytest.mark.parametrize("server", ["postgresql", "mariadb"])
def test_long_keys_are_one_finding(tmp_path: Path, urls: Urls, server: str) -> None:
    long = ["k" * (1_001 + n) for n in range(SAMPLE_KEYS + 2)]
    things = [*FINE, *((key, {"v": 1}) for key in long)]
    plan = planned(tmp_path, urls, server, entries(), things)
    found = one(plan)
    assert (found.code, found.count, len(found.keys)) == ("E106", len(long), SAMPLE_KEYS)
    assert found.text == "is over the limit of 1,000 bytes for a key"
    assert plan.moves[0].create == len(FINE)


def test_deep_values_are_one_finding(tmp_path: Path, urls: Urls) -> None:
    deep = [(f"d{n}", {"id": n, "v": nest(210 + n)}) for n in range(3)]
    found = one(planned(tmp_path, urls, "postgresql", entries(), [*FINE, *deep]))
    assert found.text == "is over the limit of 200 levels of nesting"
    assert found.keys == ["Thing:d0", "Thing:d1", "Thing:d2"]


def test_long_names_are_told_by_count_and_key(tmp_path: Path, urls: Urls) -> None:
    rules = "['/Thing/*/*']"
    target = f"At('there', {kit.fresh('limit')!r}, {rules}, 'entries')"
    odd = [(f"n{n}", {"n" * (3_000 + n): 1}) for n in range(3)]
    plan = planned(tmp_path, urls, "postgresql", target, [*FINE, *odd])
    assert sum(found.count for found in plan.errors) == 3
    assert {key for found in plan.errors for key in found.keys} == {f"Thing:n{n}" for n in range(3)}
    assert plan.moves[0].sizes.name == 3_002


def test_large_blocks_and_deep_ones_of_mongodb(tmp_path: Path, urls: Urls) -> None:
    large = [(f"l{n}", {"v": "x" * (17_000_000 + n)}) for n in range(2)]
    deep = [("deep", {"v": nest(300)})]
    target = f"At('there', {kit.fresh('limit')!r})"
    plan = planned(tmp_path, urls, "mongodb", target, [*FINE, *large, *deep])
    told = {found.text: (found.count, found.keys) for found in plan.errors}
    assert told == {
        "is over the limit of 16,777,216 bytes for a block": (2, ["Thing:l0", "Thing:l1"]),
        "is over the limit of 100 levels of nesting": (1, ["Thing:deep"]),
    }
    assert plan.moves[0].sizes.block > 17_000_000


def test_numbers_out_of_a_columns_range_are_one_finding(tmp_path: Path, urls: Urls) -> None:
    columns = {"id": "varchar(9)", "v": "smallint"}
    spec = f"tables({kit.fresh('limit')!r}, key='id', columns={columns!r})"
    big = [(f"b{n}", {"id": f"b{n}", "v": 40_000 + n}) for n in range(7)]
    found = one(planned(tmp_path, urls, "postgresql", f"At('there', {spec})", [*FINE, *big]))
    assert (found.code, found.path, found.count) == ("E103", "v", 7)
    assert found.keys == [f"Thing:b{n}" for n in range(SAMPLE_KEYS)]


def test_paths_of_lists_are_told_as_one(tmp_path: Path, urls: Urls) -> None:
    below = "rounds=tables({!r}, parent='t', order_by='p', columns={!r})".format(
        kit.fresh("limit"), {"p": "integer POSITION", "n": "smallint"}
    )
    columns = {"id": "varchar(9)", "v": "int"}
    spec = f"tables({kit.fresh('limit')!r}, key='id', columns={columns!r}, {below})"
    things = [
        (f"t{n}", {"id": f"t{n}", "v": 1, "rounds": [{"n": 1}] * n + [{"n": 99_999}]})
        for n in range(4)
    ]
    found = one(planned(tmp_path, urls, "postgresql", f"At('there', {spec})", things))
    assert (found.path, found.count) == ("rounds[*].n", 4)


def test_how_values_travel_is_counted_by_path(tmp_path: Path, urls: Urls) -> None:
    things = [
        (f"t{n}", {"n": Int64(n), "d": Decimal(n), "x": None if n % 2 else "text", "l": [1, 2.5]})
        for n in range(10)
    ]
    plan = planned(tmp_path, urls, "mongodb", f"At('there', {kit.fresh('limit')!r})", things)
    told = {(k.path, k.kind): (k.how, k.count) for k in plan.moves[0].kinds}
    assert told["n", "int64"] == ("native", 10)
    assert told["x", "null"] == ("native", 5)
    assert told["x", "text"] == ("native", 5)
    assert told["l[*]", "int32"] == ("native", 10)
    assert told["l[*]", "double"] == ("native", 10)
    assert told["d", "decimal"][1] == 10
    assert sum(count for (path, _), (_, count) in told.items() if path == "d") == 10


def test_requests_follow_the_bounds_of_a_batch(tmp_path: Path, urls: Urls) -> None:
    things = [(f"t{n}", {"v": "x" * 500_000}) for n in range(100)]  # 50 MB; a batch takes 16
    plan = planned(tmp_path, urls, "postgresql", entries(), things)
    (move,) = plan.moves
    assert isinstance(move, MovePlan)
    assert move.requests_write == 4


def test_reasons_that_differ_in_values_alone_are_one() -> None:
    issues = Issues()
    for n in range(SAMPLE_SIZE):
        issues.add("error", "E103", f"{n} characters are more than varchar(3) takes: 'a{n}'",
                   key=f"Thing:{n}", path="t")  # fmt: skip
    issues.add("error", "E103", "a column can't hold text", key="Thing:x", path="t")
    issues.add("warning", "T003", "5 rows of a1")
    issues.add("warning", "T003", "5 rows of a2")
    found = issues.findings("Thing")
    assert [f.count for f in found] == [SAMPLE_SIZE, 1, 0, 0]
    assert found[0].text.startswith("0 characters are more")


def rounds(count: int, size: int) -> Record:
    return {"rounds": [{"n": n, "moves": "x" * size} for n in range(count)], "tags": ["a", "b"]}


def test_the_plan_writes_the_line_that_takes_blocks_which_are_too_large(
    tmp_path: Path, urls: Urls
) -> None:
    large = [(f"l{n}", {"id": f"l{n}"} | rounds(10 + n, 50_000)) for n in range(2)]
    table = kit.fresh("limit")
    target = f"At('there', {table!r}, layout=item('id', expires='ends'))"
    plan = planned(tmp_path, urls, "dynalite", target, [*FINE, *large])
    assert one(plan).text == "is over the limit of 409,600 bytes for a block"
    (told,) = [f.text for f in plan.findings if f.code == "N121"]
    assert told == (
        f'of what does not fit, all 2 that were tried would as  target=At("there", "{table}", '
        '["/Thing/*/rounds[*]", "/Thing/*"], item_collection("THING#{id}", expires="ends"))'
    )
    # The same project, with the line in the place of its target.
    stores = {"emb": urls(None, "embedded"), "there": urls("dynalite", "there")}
    shop = Shop(tmp_path, stores)
    shop.script(f"move = Move('Thing', source=At('emb', 't'), {told.partition('  ')[2]})")
    (found,) = kit.carry(shop, "0001")
    assert found.equal == len(FINE) + 2


def test_no_line_is_written_where_one_block_fits_in_no_way(tmp_path: Path, urls: Urls) -> None:
    things = [("list", rounds(10, 50_000)), ("text", {"v": "x" * 500_000})]
    plan = planned(tmp_path, urls, "dynalite", f"At('there', {kit.fresh('limit')!r})", things)
    assert one(plan).count == 2
    assert [f.text for f in plan.findings if f.code == "N121"] == []


def test_a_list_that_is_too_large_for_one_entry_is_to_be_cut(tmp_path: Path, urls: Urls) -> None:
    table = kit.fresh("limit")
    target = f"At('there', {table!r}, layout=item_collection('T#{{id}}'))"
    plan = planned(tmp_path, urls, "dynalite", target, [*FINE, ("l", rounds(9, 60_000))])
    assert one(plan).code == "E103"
    (told,) = [f.text for f in plan.findings if f.code == "N121"]
    assert told == (
        f'of what does not fit, it would as  target=At("there", "{table}", '
        '["/Thing/*/rounds[*]", "/Thing/*"], item_collection("T#{id}"))'
    )
