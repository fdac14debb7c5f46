"""C57: tables that an interrupted first try left half made are completed; heads are refused."""

from __future__ import annotations

import os
import signal

import pytest
import sqlalchemy

from migrator import commands
from migrator.errors import Refused
from migrator.model.move import At
from migrator.model.value import Record, Value
from tests.ending import waited
from tests.hard_cases.bench import Bench, apply, plan
from tests.system import kit

SHOPS: list[tuple[Value, Record]] = [
    (n, {"id": n, "rounds": [{"n": 1, "moves": [{"m": 1, "t": "q4"}]}]}) for n in range(1, 4)
]


@pytest.mark.parametrize("store", ["maria", "pg", "lite"])
def test_half_made_tables_are_completed(bench: Bench, store: str) -> None:
    name = kit.fresh("c57")
    columns = (
        "columns={'id': 'int'}",
        "columns={'game': 'int', 'n': 'int'}",
        "columns={'game': 'int', 'n': 'int', 'm': 'int', 't': 'varchar(9)'}",
    )
    spec = (
        f"tables({name + '_a'!r}, key='id', {columns[0]}, rounds=tables({name + '_b'!r}, "
        f"key=['game', 'n'], parent='game', {columns[1]}, moves=tables({name + '_c'!r}, "
        f"key=['game', 'n', 'm'], parent=['game', 'n'], {columns[2]})))"
    )
    shop = bench.shop(("At('emb', 'c57')", f"At({store!r}, {spec})"))
    bench.fill(shop, At("emb", "c57"), SHOPS)
    made = plan(shop)
    pid = os.fork()
    if pid == 0:
        try:

            def die(_c: object, _u: object, statement: str, *_: object) -> None:
                if "CREATE TABLE" in statement and f"{name}_c" in statement:
                    os.kill(os.getpid(), signal.SIGKILL)

            sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", die)
            with shop.open() as project:
                commands.apply(project, made)
        finally:
            os._exit(70)
    assert os.WIFSIGNALED(waited(pid))
    (found,) = apply(shop, made)
    assert found.equal == 3
    assert bench.sql(store, f"SELECT count(*) FROM {name}_c") in ([(3,)], [[3]])


def test_two_heads_of_one_class_are_refused(bench: Bench) -> None:
    shop = bench.shop(("At('emb', 'a')", "At('emb', 'b')"), ("At('emb', 'b')", "At('emb', 'c')"))
    shop.revisions.pop()
    shop.script("move = " + kit.move("Thing", "At('emb', 'b')", "At('emb', 'd')"))
    other = shop.root / "migrations" / "0003_twin.py"
    text = (shop.root / "migrations" / "0002_step.py").read_text()
    other.write_text(text.replace("'0002'", "'0003'"))
    with pytest.raises(Refused, match=r"0002_step|0003_twin"):
        plan(shop)
