"""C22: lives of single cells are carried with the block, or told by column; never dropped."""

from __future__ import annotations

import time

from migrator import commands
from migrator.model.move import At
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
