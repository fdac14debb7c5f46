"""C63: a plan tells of rows of Cassandra that were stamped ahead of the clock."""

from __future__ import annotations

import time

import pytest

from tests.hard_cases.bench import plan
from tests.hard_cases.cassandra_bench import CassandraBench, cassandra_bench
from tests.system import kit

__all__ = ["cassandra_bench"]
_HOUR = 3600 * 1_000_000


@pytest.mark.parametrize("ahead", [True, False], ids=["ahead", "as the clock says"])
def test_a_stamp_ahead_of_the_clock_is_told(cassandra_bench: CassandraBench, ahead: bool) -> None:
    name, execute = kit.fresh("c63"), cassandra_bench.plain.execute
    execute(
        f"CREATE TABLE {name} (pk int PRIMARY KEY, a text, m map<text, text>, f frozen<list<int>>)"
    )
    execute(f"INSERT INTO {name} (pk, a, m, f) VALUES (1, 'x', {{'k': 'v'}}, [1])")
    execute(f"INSERT INTO {name} (pk) VALUES (2)")
    if ahead:
        stamp = time.time_ns() // 1000 + 2 * _HOUR
        execute(f"UPDATE {name} USING TIMESTAMP {stamp} SET f = [2] WHERE pk = 1")
    shop = cassandra_bench.shop((f"At('wide', {name!r}, layout='table')", "At('emb', 'c63')"))
    told = [each.text for each in plan(shop).findings if "ahead of the server's clock" in each.text]
    assert len(told) == ahead
    if ahead:
        # An application's own write changes nothing there, as the finding says.
        execute(f"UPDATE {name} SET f = [3] WHERE pk = 1")
        assert list(execute(f"SELECT f FROM {name} WHERE pk = 1").one()[0]) == [2]
