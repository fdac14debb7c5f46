"""The whole life of a live move under writers, from relational systems other than PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest

from migrator import commands
from migrator.model.move import At
from migrator.model.phase import Phase
from tests.system import kit, servers
from tests.system.application import (
    Application,
    Documents,
    Held,
    Hooked,
    Refused,
    Rounds,
)
from tests.system.kit import Shop, Urls
from tests.system.test_live import Game

_DEADLOCK, _SIGNAL = 1213, 1644
_OLD = 100


@dataclass
class SqlTables:
    """Games in tables: ``NAME`` and its rounds in ``NAME_round``, by a plain driver."""

    session: Any
    name: str
    mark: str
    upsert: str
    refused: Callable[[Exception], bool]

    def do(self, statement: str, *values: Any) -> Any:
        cursor = self.session.cursor()
        cursor.execute(statement.replace("?", self.mark), values)
        return cursor.fetchall()

    def make(self) -> None:
        name = self.name
        self.do(f"CREATE TABLE {name} (id varchar(40) PRIMARY KEY, n int NOT NULL)")
        self.do(
            f"CREATE TABLE {name}_round (game varchar(40) NOT NULL, pos int, spell varchar(40), "
            f"PRIMARY KEY (game, pos), FOREIGN KEY (game) REFERENCES {name} (id))"
        )

    def put(self, key: str, number: int, rounds: Rounds) -> None:
        with self._writing():
            self.do(f"INSERT INTO {self.name} (id, n) VALUES (?, ?) {self.upsert}", key, number)
            self.do(f"DELETE FROM {self.name}_round WHERE game = ?", key)
            for place, spell in enumerate(rounds):
                self.do(f"INSERT INTO {self.name}_round VALUES (?, ?, ?)", key, place, spell)

    def append(self, key: str, place: int, spell: str) -> None:
        with self._writing():
            self.do(f"INSERT INTO {self.name}_round VALUES (?, ?, ?)", key, place, spell)

    def delete(self, key: str) -> None:
        with self._writing():
            self.do(f"DELETE FROM {self.name}_round WHERE game = ?", key)
            self.do(f"DELETE FROM {self.name} WHERE id = ?", key)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            self.do("BEGIN IMMEDIATE" if self.mark == "?" else "BEGIN")
            yield
            self.do("COMMIT")
        except Exception as error:
            if self.session.in_transaction if self.mark == "?" else True:
                self.do("ROLLBACK")
            if self.refused(error):
                raise Refused from error
            raise

    def held(self) -> dict[str, Held]:
        found: dict[str, tuple[int, Rounds]] = {}
        self.do("BEGIN")
        for key, number in self.do(f"SELECT id, n FROM {self.name}"):
            found[key] = number, []
        for key, spell in self.do(f"SELECT game, spell FROM {self.name}_round ORDER BY game, pos"):
            found[key][1].append(spell)
        self.do("COMMIT")
        return dict(found)

    def close(self) -> None:
        self.session.close()


def on_mariadb(url: str, name: str) -> SqlTables:
    def refused(error: Exception) -> bool:
        return isinstance(error, pymysql.MySQLError) and error.args[0] in (_DEADLOCK, _SIGNAL)

    session = servers.connect_mariadb(url)
    return SqlTables(session, name, "%s", "ON DUPLICATE KEY UPDATE n = VALUES(n)", refused)


def on_sqlite(file: Path, name: str) -> SqlTables:
    def refused(error: Exception) -> bool:
        return isinstance(error, sqlite3.Error) and any(
            word in str(error) for word in ("Migrator moves it", "locked")
        )

    session = sqlite3.connect(file, isolation_level=None, timeout=30, check_same_thread=False)
    session.execute("PRAGMA foreign_keys = ON")
    upsert = "ON CONFLICT (id) DO UPDATE SET n = excluded.n"
    return SqlTables(session, name, "?", upsert, refused)


@pytest.fixture(params=["mariadb", "sqlite"])
def game(request: pytest.FixtureRequest, tmp_path: Path, urls: Urls) -> Iterator[Game]:
    name = kit.fresh("live")
    docs = urls("mongodb", "")
    url = urls("mariadb", "") if request.param == "mariadb" else "sqlite:///sql.db"

    def side() -> SqlTables:
        if request.param == "mariadb":
            return on_mariadb(url, name)
        return on_sqlite(tmp_path / "sql.db", name)

    tables = side()
    tables.make()
    for number in range(_OLD):
        tables.put(f"old-{1000 + number}", number, ["a", "b"])
    shop = Shop(tmp_path, {"sql": url, "docs": docs})
    shop.script(
        f"move = Move('Game', target=At('docs', '{name}'), source=At('sql', tables('{name}', "
        f"rounds=tables('{name}_round', order_by='pos'))))"
    )
    sides = {"source": side, "target": lambda: Documents(docs, name)}
    application = Application(sides, writers=2)
    with application, Hooked(application, tmp_path) as hooked:
        yield Game(shop, application, hooked, tables)  # type: ignore[arg-type]
        application.stop()
    tables.close()


def test_nothing_is_lost_over_a_cut_over_and_a_rollback(game: Game) -> None:
    game.there_and_back()
    with game.shop.open() as project:
        commands.abort(project, "0001", drop_target=True)


@pytest.mark.parametrize("server", ["postgresql", "mariadb"])
def test_a_plan_tells_of_the_feed_of_a_target_that_is_still_to_be_made(
    tmp_path: Path, urls: Urls, server: str
) -> None:
    shop = Shop(tmp_path, {"old": "embedded:///old.db", "new": urls(server, "")})
    target = f"At('new', '{kit.fresh('unmade')}', [], 'entries')"
    shop.script("move = " + kit.move("Game", "At('old', 'games')", target))
    with shop.open() as project:
        kit.fill(project.stores.get("old").collection("Game", At("old", "games")), [])
        plan = commands.plan(project, "0001", live=True)
        assert plan.errors == []
        told = [finding.code for finding in plan.findings if finding.text.startswith("new:")]
        # Where others hold all slots of PostgreSQL at this moment, triggers stand in for one.
        assert told in ([["wal-keep"], ["trigger-outbox"]] if server == "postgresql" else [[]])
        done = commands.apply(project, plan, until=Phase.SHADOW_READ)
        assert done.phase == "shadow_read"
        commands.abort(project, "0001", drop_target=True)
