"""Columns of tables that come while a live move lasts: what is written there is mirrored, too."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest

from migrator import commands
from migrator.commands import SwapTerms, Terms
from migrator.engine import points
from migrator.errors import Waiting
from migrator.model.block import join
from migrator.model.phase import Phase
from migrator.ports import Marked
from migrator.stores.sql.tables import TablesCollection
from tests.system import kit, servers
from tests.system.application import mirroring
from tests.system.kit import Shop, Urls
from tests.system.test_live import at_last
from tests.system.test_live import until as until_

until = partial(until_, seconds=150.0)
SWAP = SwapTerms(bound=60, lag=20, gateways=True)
CHANGED = "catalogue changed"
# By the look at the catalogue, by the fence, or by what the feed shows of it.
_UNDONE = "has just taken the place|have just been changed|a re-scan is not done"


@dataclass
class Games:
    """Games in a table, on their way into the embedded store; ``do`` is the application's."""

    shop: Shop
    name: str
    do: Callable[[str], Any]
    at: str

    def add_column(self) -> None:
        self.do(f"ALTER TABLE {self.name} ADD COLUMN spell varchar(20) DEFAULT 'none'")

    def replace(self) -> None:
        """Put another table in its place, as tools do that change large ones."""
        name = self.name
        self.do(f"CREATE TABLE {name}_new (id varchar(20) PRIMARY KEY, n int NOT NULL)")
        self.do(f"INSERT INTO {name}_new SELECT * FROM {name}")
        self.do(f"ALTER TABLE {name} RENAME TO {name}_old")
        self.do(f"ALTER TABLE {name}_new RENAME TO {name}")

    def insert(self) -> None:
        self.do(f"INSERT INTO {self.name} (id, n, spell) VALUES ('new', 7, 'lumos')")

    def apply(self, project: commands.Project) -> None:
        plan = commands.plan(project, "0001", live=True)
        assert plan.errors == []
        commands.apply(project, plan, until=Phase.SHADOW_READ, terms=Terms(swap=SWAP))

    def held(self, project: commands.Project, key: str) -> dict[str, Any]:
        """What the new side holds; nothing where there is no such game."""
        (route,) = project.routes("0001")
        (found,) = route.target.read([key])
        return {} if found is None else dict(join(found).value)

    def cut_over(self, project: commands.Project) -> None:
        """As soon as both sides were compared anew."""
        done = at_last(lambda: commands.cutover(project, "0001", swap=SWAP))
        assert done.primary == "target"

    def changed(self, project: commands.Project) -> list[Any]:
        events = commands.events(project, "0001")
        return [each["detail"] for each in events if each["event"] == CHANGED]


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def games(request: pytest.FixtureRequest, tmp_path: Path, urls: Urls) -> Iterator[Games]:
    name = kit.fresh("columns")
    if request.param == "sqlite":
        url = "sqlite:///sql.db"
        file = tmp_path / "sql.db"
        session: Any = sqlite3.connect(file, isolation_level=None, timeout=60)
    else:
        url = urls(request.param, "")
        connect = {
            "postgresql": servers.connect_postgresql, "mariadb": servers.connect_mariadb,
        }[request.param]  # fmt: skip
        session = connect(url)

    def do(statement: str) -> None:
        with closing(session.cursor()) as cursor:
            cursor.execute(statement)

    do(f"CREATE TABLE {name} (id varchar(20) PRIMARY KEY, n int NOT NULL)")
    do(f"INSERT INTO {name} (id, n) VALUES ('old', 1), ('older', 2)")
    shop = Shop(tmp_path, {"sql": url, "docs": "embedded:///docs.db"})
    shop.script(
        f"move = Move('Game', source=At('sql', tables('{name}')), target=At('docs', 'games'))"
    )
    yield Games(shop, name, do, request.param)
    with shop.open() as project:
        if commands.unfinished(project, "0001") is not None:
            at_last(lambda: commands.rollback(project, "0001", swap=SWAP))
            commands.abort(project, "0001", drop_target=True)
    do(f"DROP TABLE {name}")
    session.close()


def test_what_is_written_to_a_new_column_is_there_after_the_cut_over(games: Games) -> None:
    with games.shop.open() as project:
        games.apply(project)
        with mirroring(games.shop):
            games.add_column()
            games.insert()
            until(lambda: games.held(project, "new"))
            games.cut_over(project)
        for key, spell in {"old": "none", "older": "none", "new": "lumos"}.items():
            assert games.held(project, key)["spell"] == spell
        (told,) = games.changed(project)
        assert told["what"][0] == f"{games.name} columns +spell"


def test_a_column_that_came_while_no_mirror_ran_is_found_by_the_next(games: Games) -> None:
    with games.shop.open() as project:
        games.apply(project)
    games.add_column()  # no row is written by it: no feed tells of any
    with games.shop.open() as project:
        games.cut_over(project)
        assert games.held(project, "old")["spell"] == "none"
        assert len(games.changed(project)) == 1


@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
def test_a_table_that_takes_the_name_of_another_is_followed(games: Games, watched: bool) -> None:
    """As tools do that change large tables, and who restores one."""
    name = games.name
    with games.shop.open() as project:
        games.apply(project)
        if not watched:
            games.replace()
            games.do(f"UPDATE {name} SET n = 3 WHERE id = 'older'")
        with mirroring(games.shop):
            if watched:
                games.replace()
            games.do(f"INSERT INTO {name} (id, n) VALUES ('new', 7)")
            games.do(f"UPDATE {name} SET n = 5 WHERE id = 'old'")
            games.cut_over(project)
        held = {key: games.held(project, key)["n"] for key in ("old", "older", "new")}
        assert held == {"old": 5, "older": 2 if watched else 3, "new": 7}
    games.do(f"DROP TABLE {name}_old")


def test_a_mark_changes_with_what_blocks_are_made_of_alone(games: Games) -> None:
    name = games.name
    changes = [
        f"ALTER TABLE {name} ADD COLUMN spell varchar(20) DEFAULT 'none'",
        f"CREATE UNIQUE INDEX {name}_n ON {name} (n)",
        f"ALTER TABLE {name} RENAME COLUMN n TO number",
    ]
    if games.at == "postgresql":
        changes += [
            f"ALTER TABLE {name} ALTER COLUMN spell TYPE varchar(30)",
            f"ALTER TABLE {name} ALTER COLUMN spell SET DEFAULT 'lumos'",
            f"ALTER TABLE {name} ALTER COLUMN spell SET NOT NULL",
            f"COMMENT ON COLUMN {name}.spell IS 'migrator: TEXT POSITION'",
            f"ALTER TABLE {name} ADD COLUMN up varchar(20) REFERENCES {name}",
            f"ALTER TABLE {name} ALTER COLUMN number ADD GENERATED BY DEFAULT AS IDENTITY",
        ]
    elif games.at == "mariadb":
        changes += [
            f"ALTER TABLE {name} MODIFY spell varchar(30) NOT NULL DEFAULT 'lumos'",
            f"ALTER TABLE {name} ADD COLUMN up varchar(20) REFERENCES {name} (id)",
        ]
    with games.shop.open() as project:
        (route,) = project.routes("0001")
        assert isinstance(route.source, Marked)
        before = route.source.shape_mark()
        fence = route.source.fence("migrator_marked")
        fence.raise_("mark", 60)
        games.do("ANALYZE TABLE " + name if games.at == "mariadb" else "ANALYZE " + name)
        assert route.source.shape_mark() == before
        fence.lower()
        games.do(f"INSERT INTO {name} (id, n) VALUES ('new', 7)")
        for change in changes:
            assert route.source.shape_mark() == before, change
            games.do(change)
            assert route.source.shape_mark() != before, change
            before = route.source.shape_mark()


def test_the_catalogue_is_not_read_whole_under_the_fence(
    games: Games, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hook(reached: str) -> None:
        if reached == "swap.raised":
            monkeypatch.setattr(TablesCollection, "shape_now", lambda _: pytest.fail("read whole"))

    with games.shop.open() as project:
        games.apply(project)
        monkeypatch.setattr(points, "hook", hook)
        games.cut_over(project)
        monkeypatch.undo()


@pytest.mark.parametrize("point", ["swap.fenced", "swap.drained"])
def test_a_table_that_is_replaced_behind_the_fence_undoes_the_swap(
    games: Games, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence went with the table that was renamed: what is written to the other is not lost."""
    name = games.name

    def hook(reached: str) -> None:
        if reached == point:
            monkeypatch.setattr(points, "hook", None)
            games.replace()
            games.do(f"INSERT INTO {name} (id, n) VALUES ('new', 7)")

    with games.shop.open() as project:
        games.apply(project)
        monkeypatch.setattr(points, "hook", hook)
        with pytest.raises(Waiting, match=_UNDONE):
            commands.cutover(project, "0001", swap=SWAP)
        assert commands.status(project)[0].primary.startswith("sql:")
        games.cut_over(project)
        assert games.held(project, "new")["n"] == 7
    games.do(f"DROP TABLE {name}_old")


@pytest.mark.parametrize("games", ["postgresql", "mariadb"], indirect=True)
def test_no_table_can_be_replaced_at_the_flip(
    games: Games, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: list[Exception] = []

    def hook(reached: str) -> None:
        if reached == "swap.steady":
            games.do("SET lock_timeout = 100" if games.at == "postgresql"
                     else "SET lock_wait_timeout = 1")  # fmt: skip
            with pytest.raises((psycopg.errors.LockNotAvailable, pymysql.OperationalError)) as no:
                games.do(f"ALTER TABLE {games.name} RENAME TO {games.name}_old")
            refused.append(no.value)

    with games.shop.open() as project:
        games.apply(project)
        monkeypatch.setattr(points, "hook", hook)
        games.cut_over(project)
        monkeypatch.setattr(points, "hook", None)
    assert len(refused) == 1


def test_a_column_that_comes_with_the_fence_undoes_the_swap(
    games: Games, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hook(point: str) -> None:
        if point == "swap.raised":
            monkeypatch.setattr(points, "hook", None)
            games.add_column()
            games.insert()

    with games.shop.open() as project:
        games.apply(project)
        monkeypatch.setattr(points, "hook", hook)
        with pytest.raises(Waiting, match=f"columns of .*{games.name}.* have just been changed"):
            commands.cutover(project, "0001", swap=SWAP)
        assert commands.status(project)[0].primary.startswith("sql:")
        games.cut_over(project)
        assert games.held(project, "old")["spell"] == "none"
        assert games.held(project, "new")["spell"] == "lumos"


@pytest.mark.parametrize("games", ["sqlite"], indirect=True)
def test_nor_is_it_missed_where_no_mark_tells(
    games: Games, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of tables of other schemas, and of Cassandra."""
    monkeypatch.setattr(TablesCollection, "shape_mark", lambda _: None)
    test_a_column_that_comes_with_the_fence_undoes_the_swap(games, monkeypatch)


@pytest.mark.parametrize("games", ["postgresql"], indirect=True)
@pytest.mark.parametrize("watched", [True, False], ids=["watched", "unwatched"])
def test_values_that_are_written_anew_by_a_change_of_the_column_are_followed(
    games: Games, watched: bool
) -> None:
    """The column is called as before, and of the same type: no feed tells of a row."""
    anew = f"ALTER TABLE {games.name} ALTER COLUMN n TYPE int USING n + 100"
    with games.shop.open() as project:
        games.apply(project)
        if not watched:
            games.do(anew)
        with mirroring(games.shop):
            if watched:
                games.do(anew)
            games.cut_over(project)
        assert [games.held(project, key)["n"] for key in ("old", "older")] == [101, 102]


def test_a_column_that_goes_between_a_touch_and_its_read_ends_no_mirror(
    games: Games, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hook(point: str) -> None:
        if point == "mirror.touched":
            monkeypatch.setattr(points, "hook", None)
            games.do(f"ALTER TABLE {games.name} RENAME COLUMN n TO m")

    with games.shop.open() as project:
        games.apply(project)
        games.do(f"UPDATE {games.name} SET n = 7 WHERE id = 'old'")
        monkeypatch.setattr(points, "hook", hook)
        games.cut_over(project)
        assert [games.held(project, key)["m"] for key in ("old", "older")] == [7, 2]
        assert "n" not in games.held(project, "old")
