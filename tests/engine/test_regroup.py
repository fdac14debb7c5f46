"""Runs that regroup: plan, apply, verify, go back with what was written since, finish."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from migrator import commands
from migrator.errors import Failed, Refused, Waiting
from migrator.model.block import Aggregate, cut
from migrator.model.canonical import encode, equal
from migrator.model.plan import Plan
from migrator.model.value import Record, Ref, Value
from tests.engine.regrouping import (
    APART,
    BUCKET,
    MERGE,
    SPLIT,
    assert_done_as_planned,
    assert_holds,
    collection,
    days_of,
    delete,
    game,
    held,
    put,
    reading,
    rounds_of,
    without_rounds,
    write_project,
)

GAMES: dict[Value, Record] = {f"g{n}": game(n, n % 4) for n in range(40)}
READINGS: dict[Value, Record] = {n: reading(n) for n in range(200)}


@contextmanager
def opened(config: Path) -> Iterator[commands.Project]:
    with commands.Project(config, "test") as project:
        yield project


def applied(project: commands.Project, revision: str = "0001", *accept: str) -> Plan:
    plan = commands.plan(project, revision, full=True)
    assert [f.text for f in plan.errors] == []
    commands.apply(project, plan, terms=commands.Terms(accept=accept))
    assert_done_as_planned(project, plan)
    assert all(found.clean for found in commands.verify_run(project, revision))
    return plan


def all_rounds(games: dict[Value, Record]) -> dict[Value, Record]:
    return {id: r for g, value in games.items() for id, r in rounds_of(str(g), value).items()}


# ---------------------------------------------------------------------- split, and merged back


def test_a_split_and_its_way_back_with_later_writes(tmp_path: Path) -> None:
    with opened(write_project(tmp_path, SPLIT)) as project:
        source = collection(project, "old", "Game", "games")
        games = collection(project, "new", "Game", "games")
        rounds = collection(project, "new", "Round", "rounds")
        put(source, GAMES)
        plan = applied(project)
        assert (plan.moves[0].create, plan.moves[1].create) == (60, 40)
        assert_holds(rounds, all_rounds(GAMES))
        assert_holds(games, {id: without_rounds(value) for id, value in GAMES.items()})

        after = {id: value for id, value in GAMES.items() if id != "g5"}
        after["g1"] = {**GAMES["g1"], "name": "renamed", "rounds": []}
        after["g2"] = {**GAMES["g2"], "rounds": [*GAMES["g2"]["rounds"], {"moves": []}]}  # type: ignore[misc]
        after["new"] = game(99, 2)
        delete(games, "g5")
        delete(rounds, "g5-0", "g1-0")
        put(games, {id: without_rounds(after[id]) for id in ("g1", "g2", "new")})
        put(rounds, {**rounds_of("g2", after["g2"]), **rounds_of("new", after["new"])})
        with pytest.raises(Refused, match="were written since the cut-over"):
            commands.rollback(project, "0001")
        commands.rollback(project, "0001", carry_back=True)
        assert_holds(source, after)
        assert all(found.clean for found in commands.verify_run(project, "0001"))

        commands.apply(project, commands.frozen_plan(project.control.run("0001")))
        commands.finish(project, "0001", keep_source=False)
        assert not source.exists()
        assert_holds(rounds, all_rounds(after))


def test_a_split_is_merged_back(tmp_path: Path) -> None:
    with opened(write_project(tmp_path, SPLIT, MERGE)) as project:
        put(collection(project, "old", "Game", "games"), GAMES)
        applied(project)
        commands.finish(project, "0001", keep_source=False)
        rules = ["/Game/*/rounds[*]", "/Game/*"]
        whole = collection(project, "old", "Game", "whole_games", rules)
        games = collection(project, "new", "Game", "games")
        rounds = collection(project, "new", "Round", "rounds")
        plan = applied(project, "0002")
        assert plan.moves[0].create == 40
        assert [f.text for f in plan.findings if f.code == "N116"] == [
            "100 blocks of new:games and new:rounds make 40"
        ]
        assert_holds(whole, GAMES)

        after = {id: value for id, value in GAMES.items() if id != "g7"}
        after["g2"] = {**GAMES["g2"], "rounds": [{"moves": [1]}]}
        after["g4"] = {**GAMES["g4"], "name": "x", "rounds": [{"a": n} for n in range(5)]}
        after["new"] = game(99, 2)
        delete(whole, "g7")
        put(whole, {id: after[id] for id in ("g2", "g4", "new")})
        commands.rollback(project, "0002", carry_back=True)
        assert_holds(games, {id: without_rounds(value) for id, value in after.items()})
        assert_holds(rounds, all_rounds(after))

        commands.apply(project, commands.frozen_plan(project.control.run("0002")))
        commands.finish(project, "0002", keep_source=False)
        assert (games.exists(), rounds.exists()) == (False, False)
        assert_holds(whole, after)
        assert project.graph.locate("Round") is None


def test_a_part_without_a_whole_is_found_on_either_way(tmp_path: Path) -> None:
    with opened(write_project(tmp_path, SPLIT, MERGE)) as project:
        put(collection(project, "old", "Game", "games"), GAMES)
        applied(project)
        rounds = collection(project, "new", "Round", "rounds")
        put(rounds, {"x-0": {"game": Ref("Game", "x"), "number": 0}})
        with pytest.raises(Failed, match="Game:x: it is not there, yet parts of it are"):
            commands.rollback(project, "0001", carry_back=True)
        commands.rollback(project, "0001", discard=True)
        delete(rounds, "x-0")
        commands.apply(project, commands.frozen_plan(project.control.run("0001")))
        commands.finish(project, "0001", keep_source=False)
        put(rounds, {"x-0": {"game": Ref("Game", "x"), "number": 0}, "lost": {"number": 1}})
        plan = commands.plan(project, "0002")
        assert {(f.code, f.keys[0], f.text.partition(",")[0]) for f in plan.errors} == {
            ("E103", "Game:x", "it is not there"),
            ("E103", "Round:lost", "game is no reference to Game"),
        }


def test_what_stands_in_the_target_is_changed_and_deleted_as_planned(tmp_path: Path) -> None:
    with opened(write_project(tmp_path, SPLIT)) as project:
        put(collection(project, "old", "Game", "games"), GAMES)
        rounds = collection(project, "new", "Round", "rounds")
        same = rounds_of("g3", GAMES["g3"])
        other = {f"g2-{n}": {"game": Ref("Game", "g2"), "number": n} for n in (0, 7)}
        put(rounds, {**same, **other, "odd": {"a": 1}})
        plan = applied(project, "0001", "A107")
        counts = plan.moves[0]
        assert (counts.create, counts.change, counts.delete, counts.leave) == (56, 1, 2, 3)
        assert_holds(rounds, all_rounds(GAMES))


def test_two_wholes_that_give_one_part_are_found(tmp_path: Path) -> None:
    script = SPLIT.replace('"{game}-{number}"', '"moves"')
    one: Record = {"rounds": [{"moves": "a"}]}
    with opened(write_project(tmp_path, script)) as project:
        put(collection(project, "old", "Game", "games"), {"g1": one, "g2": one})
        plan = commands.plan(project, "0001")
        assert [(f.code, f.keys) for f in plan.errors] == [("E108", ["Round:a"])]


def test_a_split_alone_asks_before_it_drops_the_rest(tmp_path: Path) -> None:
    script = SPLIT.replace("moves = [", "move, _ = [")
    with opened(write_project(tmp_path, script)) as project:
        put(collection(project, "old", "Game", "games"), GAMES)
        plan = commands.plan(project, "0001")
        assert [f.code for f in plan.to_accept] == ["A117"]
        with pytest.raises(Refused, match="only a part of each Game is moved"):
            commands.apply(project, plan)


def test_a_whole_is_set_aside_with_all_its_parts(tmp_path: Path) -> None:
    with opened(write_project(tmp_path, SPLIT, oversize="quarantine")) as project:
        source = collection(project, "old", "Game", "games")
        rounds = collection(project, "new", "Round", "rounds")
        bad: Record = {"name": "bad", "rounds": [{}, {"game": "taken"}]}
        put(source, {**GAMES, "bad": bad})
        plan = commands.plan(project, "0001")
        assert [(f.code, f.keys) for f in plan.to_accept] == [("E103", ["Game:bad"])]
        terms = commands.Terms(accept=["E103"])
        with pytest.raises(Waiting, match="Game:bad"):
            commands.apply(project, plan, terms=terms)
        assert_holds(rounds, all_rounds(GAMES))
        put(source, {"bad": {"name": "bad", "rounds": [{}]}})
        assert commands.retry_quarantined(project, "0001") == (1, 0)
        commands.apply(project, plan, terms=terms)
        assert_holds(rounds, {**all_rounds(GAMES), **rounds_of("bad", {"rounds": [{}]})})


# ---------------------------------------------------------------------- buckets, and apart again


def bucket_as_block(form: bytes, value: Record) -> Aggregate:
    return Aggregate([value["sensor"], value["day"]], value)


def test_buckets_and_their_way_back_with_later_writes(tmp_path: Path) -> None:
    with opened(write_project(tmp_path, BUCKET, APART)) as project:
        source = collection(project, "old", "Reading", "readings")
        days = collection(project, "new", "Day", "days")
        put(source, READINGS)
        plan = applied(project)
        assert plan.moves[0].create == 27
        assert_same(held(days), days_of(READINGS))

        after = {id: value for id, value in READINGS.items() if value["sensor"] != "s2"}
        after["late"] = {"sensor": "s1", "at": reading(1)["at"], "value": None}
        after[3] = {**READINGS[3], "at": dt.datetime(2027, 1, 1, tzinfo=dt.UTC)}
        now = days_of(after)
        days.delete([])
        gone = [f for f in held(days) if f not in now]
        for block in [b for b in all_blocks(days) if encode(b.id) in gone]:
            delete(days, block.id)
        rules = days.at.rules("Day")
        days.write([cut(bucket_as_block(f, value), rules) for f, value in now.items()])
        with pytest.raises(Refused, match="were written since the cut-over"):
            commands.rollback(project, "0001")
        commands.rollback(project, "0001", carry_back=True)
        assert_holds(source, after)

        commands.apply(project, commands.frozen_plan(project.control.run("0001")))
        put(source, {"somebody": reading(5)})
        with pytest.raises(Refused, match="1 more than at the cut-over"):
            commands.finish(project, "0001", keep_source=False)
        delete(source, "somebody")
        commands.finish(project, "0001", keep_source=False)

        plan = applied(project, "0002")
        assert plan.moves[0].create == len(after)
        again = collection(project, "old", "Reading", "readings_again")
        assert_holds(again, after)
        later = {id: value for id, value in after.items() if value["sensor"] != "s0"}
        later["new"] = {"sensor": "s9", "at": reading(0)["at"]}
        delete(again, *(id for id in after if id not in later))
        put(again, {"new": later["new"]})
        commands.rollback(project, "0002", carry_back=True)
        assert_same(held(days), days_of(later))

        commands.apply(project, commands.frozen_plan(project.control.run("0002")))
        commands.finish(project, "0002", keep_source=False)
        assert not days.exists()
        assert_holds(again, later)
        assert project.graph.locate("Day") is None


def all_blocks(of: object) -> Iterator[object]:
    for range_ in of.split(1):  # type: ignore[attr-defined]
        yield from of.page(range_, None, 10_000).blocks  # type: ignore[attr-defined]


def assert_same(found: dict[bytes, Record], wanted: dict[bytes, Record]) -> None:
    assert found.keys() == wanted.keys()
    assert [f for f in wanted if not equal(found[f], wanted[f])] == []


def test_a_bucket_that_stands_there_is_compared_as_a_block(tmp_path: Path) -> None:
    with opened(write_project(tmp_path, BUCKET)) as project:
        put(collection(project, "old", "Reading", "readings"), READINGS)
        days = collection(project, "new", "Day", "days")
        made = list(days_of(READINGS).values())
        days.create()
        rules = days.at.rules("Day")
        other = [{**made[0], "readings": []}, {"sensor": "gone", "day": dt.date(2026, 1, 1)}]
        days.write([cut(bucket_as_block(b"", v), rules) for v in [*other, *made[1:3]]])
        plan = applied(project, "0001", "A107")
        counts = plan.moves[0]
        assert (counts.create, counts.change, counts.delete, counts.leave) == (24, 1, 1, 2)
        assert_same(held(days), days_of(READINGS))


def test_readings_that_belong_nowhere_are_told_and_set_aside(tmp_path: Path) -> None:
    config = write_project(tmp_path, BUCKET, oversize="quarantine")
    with opened(config) as project:
        source = collection(project, "old", "Reading", "readings")
        put(source, {**READINGS, "no day": {"sensor": "s1", "at": None}, "no sensor": {}})
        plan = commands.plan(project, "0001")
        assert {f.code for f in plan.to_accept} == {"E103"}
        assert {k for f in plan.to_accept for k in f.keys} == {
            "Reading:no day", "Reading:no sensor",
        }  # fmt: skip
        terms = commands.Terms(accept=["E103"])
        with pytest.raises(Waiting, match="Reading:no day"):
            commands.apply(project, plan, terms=terms)
        days = collection(project, "new", "Day", "days")
        assert_same(held(days), days_of(READINGS))
        put(source, {"no day": reading(7)})
        delete(source, "no sensor")
        assert commands.retry_quarantined(project, "0001")[1] == 0
        commands.apply(project, plan, terms=terms)
        mended = {**READINGS, "no day": reading(7)}
        assert_same(held(days), days_of(mended))


# ---------------------------------------------------------------------- keys made anew

REKEY = """
moves = [
    Move("InvoiceOfCustomer", of="Invoice", source=At("old", "invoices"),
         target=At("new", "by_customer"), evolve=[ReKey(["customer", Id()])]),
    Move("InvoiceOfMonth", of="Invoice", source=At("old", "invoices"),
         target=At("new", "by_day"), evolve=[ReKey([Day("at"), Shard(4), "id"], was="id")]),
    Move("Line", of="Invoice", source=At("old", "invoices"), target=At("new", "totals"),
         evolve=[Keep(["id", "total"])]),
]
"""
BACK = """
move = Move("Invoice", of="InvoiceOfCustomer", target=At("old", "invoices_again"),
            evolve=[ReKey("id", was=["customer", "id"]),
                    ReKey(Template("{}#{shard:02}", {"shard": Shard(16)}))])
"""


def invoice(n: int) -> Record:
    at = dt.datetime(2026, 3, 1 + n % 5, tzinfo=dt.UTC)
    return {"id": f"i{n}", "customer": Ref("Customer", n % 7), "at": at, "total": n / 2}


def test_one_table_goes_to_two_partition_keys_and_back(tmp_path: Path) -> None:
    with opened(write_project(tmp_path, REKEY, BACK)) as project:
        source = collection(project, "old", "Invoice", "invoices")
        put(source, {f"i{n}": invoice(n) for n in range(50)})
        applied(project)
        by_customer = collection(project, "new", "InvoiceOfCustomer", "by_customer")
        assert encode([3, "i3"]) in held(by_customer)
        day = dt.date(2026, 3, 4)
        by_day = collection(project, "new", "InvoiceOfMonth", "by_day")
        assert any(encode([day, s, "i3"]) in held(by_day) for s in range(4))
        totals = collection(project, "new", "Line", "totals")
        assert held(totals)[encode("i3")] == {"id": "i3", "total": 1.5}

        key: list[Value] = [3, "i3"]
        put_listed(by_customer, key, {**invoice(3), "total": 99.0})
        put_listed(by_day, next(b.id for b in all_blocks(by_day) if b.id[2] == "i3"),  # type: ignore[attr-defined]
                   {**invoice(3), "total": 99.0})  # fmt: skip
        put(totals, {"i3": {"id": "i3", "total": 99.0}})
        commands.rollback(project, "0001", carry_back=True)
        assert held(source)[encode("i3")]["total"] == 99.0
        commands.apply(project, commands.frozen_plan(project.control.run("0001")))
        commands.finish(project, "0001", keep_source=False)

        applied(project, "0002")
        again = collection(project, "old", "Invoice", "invoices_again")
        assert len(held(again)) == 50
        ids = [b.id for b in all_blocks(again)]  # type: ignore[attr-defined]
        assert all(str(id).rpartition("#")[0].startswith("i") for id in ids)


def put_listed(of: object, key: Value, value: Record) -> None:
    rules = of.at.rules(of.cls)  # type: ignore[attr-defined]
    of.write([cut(Aggregate(key, value), rules)])  # type: ignore[attr-defined]


# ---------------------------------------------------------------------- scripts


def test_two_classes_go_to_one_collection_only_where_it_tells_them_apart(tmp_path: Path) -> None:
    script = SPLIT.replace('At("new", "games")', 'At("new", "rounds")')
    with opened(write_project(tmp_path, script)) as project:
        put(collection(project, "old", "Game", "games"), GAMES)
        with pytest.raises(Refused, match="Round and Game are both moved to new:rounds"):
            commands.plan(project, "0001")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (SPLIT.replace('of="Game", ', ""), "what is regrouped becomes another class"),
        (SPLIT.replace("SplitOut(", "Drop("), "unexpected keyword|got an unexpected"),
        (SPLIT.replace('back="game", ', ""), "say either back or by"),
        (SPLIT.replace('of="Game"', 'of="Ga me"'), "is no class name"),
        (MERGE, "no source can be told"),
        (MERGE.replace('"Game", target', '"Game", source=At("old", "g"), target'),
         "moves Round, and no source can be told"),
        (MERGE.replace('"Game", target', '"Game", source=At("old", "g"), target').replace(
            "MergeIn(", 'MergeIn(at=At("old", "whole_games"), path='), "are the same collection"),
    ],
)  # fmt: skip
def test_scripts_that_make_no_sense_are_refused(tmp_path: Path, script: str, why: str) -> None:
    with opened(write_project(tmp_path, script)) as project, pytest.raises(Refused, match=why):
        commands.plan(project, "0001")
