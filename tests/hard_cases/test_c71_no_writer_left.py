"""C71: when one write fails for good, no other goes on behind the caller's back."""

from __future__ import annotations

import threading

import pytest

from migrator import commands
from migrator.errors import Failed
from migrator.model.move import At
from tests.hard_cases.bench import Bench, plan
from tests.system import kit


def test_nothing_is_written_after_the_failure(bench: Bench) -> None:
    table = kit.fresh("c71")
    bench.sql("pg", f"CREATE TABLE {table} (id int PRIMARY KEY, CHECK (id <> 5))")
    shop = bench.shop(("At('emb', 'c71')", f"At('pg', tables({table!r}))"))
    bench.fill(shop, At("emb", "c71"), [(n, {"id": n}) for n in range(4000)])
    made = plan(shop, page=50)
    before = set(threading.enumerate())
    with shop.open() as project, pytest.raises(Failed):
        commands.apply(project, made, terms=commands.Terms(workers=4))
    left = [t.name for t in threading.enumerate() if t not in before]
    assert [name for name in left if name.startswith("task")] == []
    ((written,),) = bench.sql("pg", f"SELECT count(*) FROM {table}")
    assert written < 4000
    assert bench.sql("pg", f"SELECT count(*) FROM {table}") == [(written,)]
