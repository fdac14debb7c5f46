"""A project of one or more moves, with the plain drivers beside it."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Collection, Iterable
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import pymongo.database

from migrator import commands
from migrator.engine import points
from migrator.engine.verify import Verification
from migrator.model.move import At
from migrator.model.plan import Finding, Plan
from migrator.model.value import Record, Value
from tests.ending import waited
from tests.system import kit, servers
from tests.system.kit import Shop, Urls

SERVERS = {"pg": "postgresql", "maria": "mariadb", "docs": "mongodb"}


class Bench:
    """Moves of a class ``Thing``; stores are opened as a script names them."""

    def __init__(self, root: Path, urls: Urls) -> None:
        self.root, self._urls = root, urls

    def url(self, name: str) -> str:
        if name in SERVERS:
            return self._urls(SERVERS[name], name)
        return f"{'embedded' if name == 'emb' else 'sqlite'}:///{name}.db"

    def shop(self, *moves: tuple[str, str] | str) -> Shop:
        """A project with these moves, each a revision; (source, target) or the whole text."""
        texts = [m if isinstance(m, str) else kit.move("Thing", *m) for m in moves]
        names = [n for n in (*SERVERS, "lite", "emb") if any(f"At('{n}'" in t for t in texts)]
        shop = Shop(self.root, {name: self.url(name) for name in names})
        for text in texts:
            shop.script(f"move = {text}")
        return shop

    # ------------------------------------------------------------ plain drivers

    def sql(self, name: str, *statements: str) -> list[Any]:
        """Carry out statements on one plain session; the rows of the last."""
        if name == "lite":
            with closing(sqlite3.connect(self.root / "lite.db", isolation_level=None)) as session:
                return [session.execute(s).fetchall() for s in statements][-1]
        if name == "pg":
            with servers.connect_postgresql(self.url(name)) as connection:
                for statement in statements:
                    cursor = connection.execute(statement)  # type: ignore[call-overload]
                return cursor.fetchall() if cursor.description else []
        with servers.connect_mariadb(self.url(name)) as session, session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    @cached_property
    def docs(self) -> pymongo.database.Database[dict[str, Any]]:
        return servers.connect_mongodb(self.url("docs")).get_default_database()

    def fill(self, shop: Shop, at: At, things: Iterable[tuple[Value, Record]]) -> None:
        with shop.open() as project:
            kit.fill(project.stores.get(at.store).collection("Thing", at), things)

    def contents(self, shop: Shop, at: At) -> kit.Contents:
        with shop.open() as project:
            return kit.contents(project.stores.get(at.store).collection("Thing", at))


def plan(shop: Shop, revision: str = "0001", page: int | None = None) -> Plan:
    """The plan of a revision, where asked for with smaller pages, so that there are several."""
    with shop.open() as project:
        made = commands.plan(project, revision, full=True)
    if page is None:
        return made
    moves = [msgspec.structs.replace(move, page=page) for move in made.moves]
    return msgspec.structs.replace(made, moves=moves)


def apply(
    shop: Shop, made: Plan | None = None, *, accept: bool = False, keys: Collection[str] = ()
) -> list[Verification]:
    """Apply a plan, where asked to with all its findings accepted; clean to its end."""
    made = made or plan(shop)
    codes = [finding.code for finding in made.to_accept] if accept else []
    with shop.open() as project:
        terms = commands.Terms(accept=codes, accept_keys=keys)
        found = commands.apply(project, made, terms=terms).verified
        kit.assert_as_planned(project, made.revision)
    return found


def verify(shop: Shop, revision: str = "0001") -> Verification:
    with shop.open() as project:
        (found,) = commands.verify_run(project, revision)
        return found


def error(made: Plan) -> Finding:
    """The one error of a plan."""
    (found,) = made.errors
    return found


def killed(shop: Shop, made: Plan, point: str, nth: int) -> None:
    """Apply in a process of its own that dies at a named point, by kill -9."""
    pid = os.fork()
    if pid == 0:
        try:
            points.hook = _At(point, nth)
            with shop.open() as project:
                commands.apply(project, made)
        finally:
            os._exit(70)
    status = waited(pid)
    assert os.WIFSIGNALED(status), f"{point} was not reached"


class _At:
    def __init__(self, point: str, nth: int) -> None:
        self.point, self.left = point, nth

    def __call__(self, point: str) -> None:
        self.left -= point == self.point
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
