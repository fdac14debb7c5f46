"""C22: lives and write times of single cells are carried with the block, or told; never dropped."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from migrator import commands
from migrator.engine import points
from migrator.model.move import At
from migrator.model.phase import Phase
from tests.contract import own_redis
from tests.contract.own_redis import Own
from tests.hard_cases.bench import apply, plan
from tests.hard_cases.cassandra_bench import CassandraBench, cassandra_bench
from tests.system import kit

__all__ = ["cassandra_bench"]


def test_cells_that_end_by_themselves(cassandra_bench: CassandraBench) -> None:
    """A collection in the table changes nothing: scalars, frozen values and elements are asked."""
    name, execute = kit.fresh("c22"), cassandra_bench.plain.execute
    execute(
        f"CREATE TABLE {name} (pk int PRIMARY KEY, a text, b text, m map<text, text>, "
        "f frozen<list<int>>)"
    )
    execute(f"INSERT INTO {name} (pk, b) VALUES (1, 'stays')")
    execute(f"UPDATE {name} USING TTL 1000 SET a = 'goes' WHERE pk = 1")
    execute(f"UPDATE {name} USING TTL 500 SET m['x'] = 'goes' WHERE pk = 1")
    execute(f"UPDATE {name} SET m['y'] = 'stays' WHERE pk = 1")
    execute(f"UPDATE {name} USING TTL 700 SET f = [1, 2] WHERE pk = 1")
    execute(
        f"INSERT INTO {name} (pk, a, m, f) VALUES (2, 'goes', {{'x': 'goes'}}, [3]) USING TTL 900"
    )
    execute(f"INSERT INTO {name} (pk, a, m) VALUES (3, 'stays', {{'x': 'stays'}})")
    began = time.time()
    source = f"At('wide', {name!r}, layout='table')"
    shop = cassandra_bench.shop((source, "At('emb', 'c22')"))
    (told,) = plan(shop).errors
    assert (told.code, told.keys, told.count) == ("E101", ["Thing:1"], 1)
    assert "cells of a, f, m expire by themselves" in told.text
    execute(f"DELETE FROM {name} WHERE pk = 1")
    apply(shop)
    with shop.open() as project:
        target = cassandra_bench.collection(project, At("emb", "c22"))
        found = {block.id: block for block in kit.blocks(target)}
        assert commands.verify_run(project, "0001")[0].clean
    assert found.keys() == {2, 3}
    ends = found[2].expires
    assert ends is not None
    assert abs(ends / 1000 - began - 900) < 300
    assert found[3].expires is None


COLUMNS = {"id": "text", "a": "text", "b": "text"}
DAY = 86_400
FIELDS = "redis_native('u:{id}', ends=('u:{id}', 'deadlines'))"


def table(name: str, deadlines: str = ", deadlines='ends'") -> str:
    layout = f"cassandra_table(key='id', columns={COLUMNS}{deadlines})"
    return f"At('wide', {name!r}, layout={layout})"


def fill(execute: Any, name: str) -> None:
    """A table of an application: rows of which a and b live for different times."""
    shape = ", ".join(f"{column} {type_}" for column, type_ in COLUMNS.items())
    execute(f"CREATE TABLE {name} ({shape}, PRIMARY KEY (id))")
    for n in range(4):
        execute(f"INSERT INTO {name} (id, a, b) VALUES ('k{n}', 'goes', 'stays')")
    execute(f"UPDATE {name} USING TTL {DAY} SET a = 'goes' WHERE id = 'k1'")
    execute(f"UPDATE {name} USING TTL {2 * DAY} SET a = 'goes', b = 'too' WHERE id = 'k2'")
    execute(f"UPDATE {name} USING TTL {DAY} SET a = 'goes' WHERE id = 'k2'")


def ends(execute: Any, name: str) -> dict[str, list[int | None]]:
    """When a and b of each row end by the server's own count, to a few minutes."""
    lives = execute(f"SELECT id, ttl(a), ttl(b) FROM {name}")
    return {row[0]: [life and round(life / 3600) for life in row[1:]] for row in lives}


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[tuple[str, Any]]:
    """A server that has deadlines of single fields: its address, and the plain driver."""
    server = Own(tmp_path, program=own_redis.valkey())
    with redis.Redis.from_url(server.url) as plain:
        yield server.url, plain
    server.stop()


def test_they_travel_to_hash_fields_and_any_layout_and_back(
    cassandra_bench: CassandraBench, cache: tuple[str, Any]
) -> None:
    execute, names = cassandra_bench.plain.execute, [kit.fresh("c22") for _ in range(3)]
    fill(execute, names[0])
    first, second, third = map(table, names)
    fields = f"At('cache', 'u', layout={FIELDS})"
    shop = kit.Shop(
        cassandra_bench.root,
        {"wide": cassandra_bench.url, "cache": cache[0]},
    )
    entries, row = (f"At('wide', {kit.fresh('c22')!r}, layout={x!r})" for x in ("partition", "row"))
    ways = itertools.pairwise((first, fields, second, entries, row, third))
    for way in ways:
        kit.carry(
            shop, shop.script(f"move = {kit.move('Thing', *way)}"), accept=["redis-persistence"]
        )
    expected = {"k0": [None, None], "k1": [24, None], "k2": [24, 48], "k3": [None, None]}
    assert [ends(execute, name) for name in names] == [expected] * 3
    (moment,) = cache[1].execute_command("HPEXPIRETIME", "u:k1", "FIELDS", 1, "a")
    asked = f"SELECT ttl(a), toUnixTimestamp(now()) FROM {names[0]} WHERE id = 'k1'"
    ((left, now),) = execute(asked)
    assert 0 <= now // 1000 + left - moment // 1000 < 60


def test_a_target_that_has_none_refuses_them_by_path(
    cassandra_bench: CassandraBench, cache: tuple[str, Any]
) -> None:
    name = kit.fresh("c22")
    fill(cassandra_bench.plain.execute, name)
    shop = kit.Shop(cassandra_bench.root, {"wide": cassandra_bench.url, "cache": cache[0]})
    targets = [
        "At('cache', 'u', layout=redis_native('u:{id}'))",
        table(kit.fresh("c22"), ""),
    ]
    for target in targets:
        shop.script(f"move = {kit.move('Thing', table(name), target)}")
    with shop.open() as project:
        found = [
            {(e.code, e.path, e.count) for e in commands.plan(project, revision).errors}
            for revision in shop.revisions
        ]
    assert ("E105", "ends.a", 2) in found[0]
    assert found[1] == {("E103", "ends", 4)}


def test_a_deadline_that_was_changed_is_found(cassandra_bench: CassandraBench) -> None:
    execute, names = cassandra_bench.plain.execute, [kit.fresh("c22") for _ in range(2)]
    fill(execute, names[0])
    shop = cassandra_bench.shop((table(names[0]), table(names[1])))
    with shop.open() as project:
        commands.apply(project, commands.plan(project, "0001"), until=Phase.SHADOW_READ)
        assert commands.verify_run(project, "0001")[0].clean
        execute(f"UPDATE {names[1]} USING TTL {3 * DAY} SET a = 'goes' WHERE id = 'k1'")
        execute(f"UPDATE {names[1]} SET b = 'too' WHERE id = 'k2'")
        (found,) = commands.verify_run(project, "0001")
    told = {each.key: [path.partition(":")[0] for path in each.paths] for each in found.told}
    assert told == {"Thing:k1": ["ends.a"], "Thing:k2": ["(expires)"]}


@pytest.mark.parametrize(
    ("target", "point"),
    [(table, "backfill.read"), (lambda name: f"At('emb', {name!r})", "verify.listed")],
    ids=["table", "embedded"],
)
def test_cells_that_end_while_they_are_moved(
    cassandra_bench: CassandraBench, monkeypatch: pytest.MonkeyPatch, target: Any, point: str
) -> None:
    """Neither lost nor different: also where the target has no end of its own for them."""
    execute, names = cassandra_bench.plain.execute, [kit.fresh("c22") for _ in range(2)]
    fill(execute, names[0])
    shop = cassandra_bench.shop((table(names[0]), target(names[1])))
    waited: list[str] = []

    def wait(reached: str) -> None:
        if reached == point and not waited:
            waited.append(reached)
            end = time.monotonic() + 90
            while execute(f"SELECT a FROM {names[0]} WHERE id = 'k3'").one()[0] is not None:
                assert time.monotonic() < end, "the cell did not end"
                time.sleep(0.1)

    with shop.open() as project:
        plan_ = commands.plan(project, "0001")
        execute(f"UPDATE {names[0]} USING TTL 2 SET a = 'goes' WHERE id = 'k3'")
        monkeypatch.setattr(points, "hook", wait)
        (verified,) = commands.apply(project, plan_).verified
    assert waited
    assert (verified.clean, verified.read, verified.told) == (True, 4, [])


def test_write_times_are_carried_where_both_sides_name_a_field(
    cassandra_bench: CassandraBench,
) -> None:
    execute, names = cassandra_bench.plain.execute, [kit.fresh("c22") for _ in range(3)]
    fill(execute, names[0])
    options = ", deadlines='ends', write_times='at'"
    shop = cassandra_bench.shop(
        (table(names[0], options), table(names[1], options)), (table(names[0]), table(names[2]))
    )
    with shop.open() as project:
        plans = [commands.plan(project, revision) for revision in shop.revisions]
        codes = [[finding.code for finding in each.findings] for each in plans]
        assert ["N123" in each for each in codes] == [False, True]
        live = commands.plan(project, "0001", live=True)
        assert [e.code for e in live.errors].count("E137") == 2
        commands.apply(project, plans[0], until=Phase.SHADOW_READ)
        assert commands.verify_run(project, "0001")[0].clean
        asked = "SELECT id, writetime(a), writetime(b) FROM"
        stamps = [sorted(map(tuple, execute(f"{asked} {name}"))) for name in names[:2]]
        assert stamps[0] == stamps[1]
        execute(f"UPDATE {names[1]} SET b = 'stays' WHERE id = 'k1'")
        (found,) = commands.verify_run(project, "0001")
    assert [path.partition(":")[0] for path in found.told[0].paths] == ["at.b"]


def test_they_come_back_with_what_was_written_since(cassandra_bench: CassandraBench) -> None:
    execute, names = cassandra_bench.plain.execute, [kit.fresh("c22") for _ in range(2)]
    fill(execute, names[0])
    execute(f'ALTER TABLE {names[0]} ADD "_migrator" text')
    options = ", deadlines='ends', write_times='at'"
    shop = cassandra_bench.shop((table(names[0], options), table(names[1], options)))
    with shop.open() as project:
        commands.apply(project, commands.plan(project, "0001"))
        execute(f"UPDATE {names[1]} USING TTL {3 * DAY} SET b = 'new' WHERE id = 'k0'")
        execute(f"UPDATE {names[1]} SET b = 'new' WHERE id = 'k1'")
        execute(f"DELETE b FROM {names[1]} WHERE id = 'k2'")
        execute(f"DELETE FROM {names[1]} WHERE id = 'k3'")
        execute(f"INSERT INTO {names[1]} (id, a, b) VALUES ('k9', 'goes', 'new')")
        (verified,) = commands.rollback(project, "0001", carry_back=True).verified
    assert (verified.clean, verified.equal) == (True, 4)
    asked = "SELECT id, a, b, writetime(a), writetime(b) FROM"
    held = [sorted(map(str, execute(f"{asked} {name}"))) for name in names]
    assert held[0] == held[1]
    assert ends(execute, names[0]) == {
        "k0": [None, 72], "k1": [24, None], "k2": [24, None], "k9": [None, None],
    }  # fmt: skip
