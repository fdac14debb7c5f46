"""C56: a range that is not answered in time is asked in smaller parts, or the run is not done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cassandra import OperationTimedOut
from structlog.testing import capture_logs

from migrator import commands
from migrator.errors import Transient
from migrator.model.move import At
from migrator.model.phase import Phase
from tests.hard_cases.bench import plan
from tests.hard_cases.cassandra_bench import CassandraBench, cassandra_bench
from tests.system import kit
from tests.system.kit import Shop

__all__ = ["cassandra_bench"]
WIDE, OTHERS, MOST = 700, 200, 100


class Late:
    """An answer that does not come where what is asked for is too much."""

    def __init__(self, future: Any, too_much: Callable[[list[Any]], bool]) -> None:
        self._future, self._too_much = future, too_much

    def result(self) -> Any:
        found = list(self._future.result())
        if self._too_much(found):
            raise OperationTimedOut("the node did not answer in time")
        return found


def slow(project: commands.Project, too_much: Callable[[list[Any]], bool]) -> None:
    session: Any = project.stores.get("wide").wire._session  # type: ignore[attr-defined]
    send = session.execute_async
    session.execute_async = lambda *args, **more: Late(send(*args, **more), too_much)


@pytest.fixture
def shop(cassandra_bench: CassandraBench) -> Shop:
    """A project of one move from a table with a wide partition."""
    name, plain = kit.fresh("c56"), cassandra_bench.plain
    plain.execute(f"CREATE TABLE {name} (p text, c int, v text, PRIMARY KEY (p, c))")
    put = plain.prepare(f"INSERT INTO {name} (p, c, v) VALUES (?, ?, 'x')")
    rows = [("wide", c) for c in range(WIDE)] + [(f"p{c}", c) for c in range(OTHERS)]
    for sent in [plain.execute_async(put, row) for row in rows]:
        sent.result()
    return cassandra_bench.shop((f"At('wide', {name!r}, layout='table')", "At('emb', 'c56')"))


def test_a_range_is_asked_in_smaller_parts(shop: Shop) -> None:
    made = plan(shop)
    with shop.open() as project, capture_logs() as logs:
        slow(project, lambda found: len(found) > MOST)
        (found,) = commands.apply(project, made).verified
        kit.assert_as_planned(project, "0001")
    assert (found.equal, found.clean) == (WIDE + OTHERS, True)
    assert [line["event"] for line in logs].count("retry") >= 3


def test_a_range_that_never_comes_leaves_the_run_undone(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.retry.GIVE_UP_SECONDS", 0.3)
    made = plan(shop)
    with shop.open() as project:
        slow(project, lambda found: any(row[0] == b"wide" for row in found))
        with pytest.raises(Transient, match="in time"):
            commands.apply(project, made)
        assert project.control.run("0001").phase is Phase.DUAL_WRITE
    with shop.open() as project:
        (found,) = commands.apply(project, made).verified
        assert (found.equal, found.clean) == (WIDE + OTHERS, True)
        target = project.stores.get("emb").collection("Thing", At("emb", "c56"))
        assert len(kit.contents(target)) == WIDE + OTHERS
