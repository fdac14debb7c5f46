"""Live moves of tables whose keys MongoDB has no kind for, and its change stream does not tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pymongo
import pytest

from migrator import commands
from migrator.commands import SwapTerms, Terms
from migrator.model.phase import Phase
from tests.system import kit, servers
from tests.system.application import mirroring
from tests.system.kit import Shop, Urls
from tests.system.test_live import at_last, until

SWAP = SwapTerms(bound=60, lag=20, hook="true")
COMPOSITE = "row int, day date, body text, PRIMARY KEY (row, day)"
DAY = "day date PRIMARY KEY, body text"


@pytest.fixture(params=[COMPOSITE, DAY], ids=["composite", "date"])
def seats(request: pytest.FixtureRequest, urls: Urls) -> Iterator[tuple[str, str, bool]]:
    """A table, where it lies, and whether its key has two columns."""
    name, url = kit.fresh("carried"), urls("postgresql", "")
    with closing(servers.connect_postgresql(url)) as session:
        session.execute(f"CREATE TABLE {name} ({request.param})")
        yield name, url, request.param == COMPOSITE
        session.execute(f"DROP TABLE {name}")


def test_what_is_written_under_keys_that_are_carried_is_kept_on_both_ways(
    seats: tuple[str, str, bool], urls: Urls, tmp_path: Path
) -> None:
    name, url, composite = seats
    to = urls("mongodb", "")
    shop = Shop(tmp_path, {"sql": url, "docs": to})
    layout = "document" if composite else "flat"
    at = f"At('docs', '{name}', ['/Seat/*/*'], layout='{layout}')"
    shop.script(f"move = Move('Seat', source=At('sql', tables('{name}')), target={at})")
    row = "1, " if composite else ""

    def put(session: psycopg.Connection[Any], day: int, body: str) -> None:
        session.execute(
            f"INSERT INTO {name} VALUES ({row}'2026-01-{day:02}', '{body}') "
            f"ON CONFLICT ({'row, ' if composite else ''}day) DO UPDATE SET body = excluded.body"
        )

    def rows(session: psycopg.Connection[Any]) -> dict[int, str]:
        found = session.execute(f"SELECT extract(day FROM day)::int, body FROM {name}")
        return dict(found.fetchall())

    with (
        closing(servers.connect_postgresql(url)) as session,
        pymongo.MongoClient(to) as client,
        shop.open() as project,
    ):
        documents = client.get_default_database()[name]

        def held() -> dict[int, str]:
            return {int(str(d["day"])[8:10]): d["body"] for d in documents.find()}

        for day in range(1, 6):
            put(session, day, "old")
        _apply(project)
        with mirroring(shop):
            put(session, 1, "changed")
            put(session, 9, "new")
            session.execute(f"DELETE FROM {name} WHERE day = '2026-01-02'")
            want = {1: "changed", 3: "old", 4: "old", 5: "old", 9: "new"}
            until(lambda: held() == want or None)
            at_last(lambda: commands.cutover(project, "0001", swap=SWAP))
            assert held() == want
            _after(documents, lambda day: {"0": 1, "1": day} if composite else day)
            want = {1: "changed", 4: "after", 5: "old", 9: "new"}
            until(lambda: rows(session) == want or None)
            at_last(lambda: commands.rollback(project, "0001", swap=SWAP))
        assert rows(session) == want == held()
        assert [e for e in commands.events(project, "0001") if e["event"] == "foreign write"] == []
        commands.abort(project, "0001", drop_target=True)


def _apply(project: commands.Project) -> None:
    plan = commands.plan(project, "0001", live=True)
    assert plan.errors == []
    codes = [finding.code for finding in plan.findings]
    terms = Terms(swap=SWAP, accept=codes)
    commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)


def _after(documents: Any, id_of: Callable[[str], Any]) -> None:
    """The application writes to the new primary."""
    gone = documents.delete_one({"_id": id_of("2026-01-03")})
    changed = documents.update_one({"_id": id_of("2026-01-04")}, {"$set": {"body": "after"}})
    assert gone.deleted_count == changed.modified_count == 1
