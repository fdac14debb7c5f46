"""Databases of the tests' own on each relational system, by plain drivers."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pymysql
import pytest
from pymysql.constants import CLIENT

from migrator.ports import StoreSettings
from migrator.stores.sql.store import SqlStore
from tests.conftest import server_url, tidy

DATA = Path(os.environ.get("MIGRATOR_SHARED", Path(__file__).parents[3] / "shared")) / "data"


class Base:
    """One empty database: its URL, and statements sent by the plain driver."""

    def __init__(self, dialect: str, folder: Path) -> None:
        self.dialect = dialect
        self.name = f"migrator_sql_{uuid.uuid4().hex[:10]}"
        self._stores: dict[str, SqlStore] = {}
        if dialect == "sqlite":
            self.file = folder / f"{self.name}.db"
            self.url = f"sqlite:///{self.file}"
            return
        self.server = server_url("postgresql" if dialect == "postgresql" else "mariadb")
        self._admin(f"CREATE DATABASE {self.name}")
        self.url = urlsplit(self.server)._replace(path=f"/{self.name}").geturl()

    def _admin(self, statement: str) -> None:
        with self._connect(self.server) as connection:
            connection.cursor().execute(statement)

    def _connect(self, url: str) -> Any:
        if self.dialect == "sqlite":
            return sqlite3.connect(self.file, isolation_level=None)
        if self.dialect == "postgresql":
            return psycopg.connect(url, autocommit=True)
        parts = urlsplit(url)
        return pymysql.connect(
            host=parts.hostname,
            port=parts.port or 3306,
            user=parts.username,
            password=parts.password or "",
            database=parts.path.strip("/"),
            autocommit=True,
            init_command="SET time_zone = '+00:00', sql_mode = 'NO_AUTO_VALUE_ON_ZERO'",
            client_flag=CLIENT.MULTI_STATEMENTS,
        )

    def run(self, script: str) -> None:
        connection = self._connect(self.url)
        try:
            if self.dialect == "sqlite":
                connection.executescript(script)
                return
            cursor = connection.cursor()
            cursor.execute(script)
            while cursor.nextset():
                pass
        finally:
            connection.close()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        connection = self._connect(self.url)
        try:
            cursor = connection.cursor()
            cursor.execute(query)
            return [tuple(row) for row in cursor.fetchall()]
        finally:
            connection.close()

    def store(self, name: str = "shop", siblings: dict[str, Base] | None = None) -> SqlStore:
        if name not in self._stores:
            others = siblings or {}
            self._stores[name] = SqlStore(
                StoreSettings(name, self.url, sibling=lambda other: others[other].store(other))
            )
        return self._stores[name]

    def drop(self) -> None:
        for store in self._stores.values():
            store.close()
        if self.dialect == "postgresql":
            tidy("postgresql", partial(self._admin, f"DROP DATABASE {self.name} WITH (FORCE)"))
        elif self.dialect == "mysql":
            tidy("mariadb", partial(self._admin, f"DROP DATABASE {self.name}"))


Make = Callable[[str], Base]


def need(name: str) -> Path:
    """A file of the data sets; skips where it is not at hand."""
    if not (DATA / name).exists():
        pytest.skip(f"no {name} in {DATA} (say where the data sets are by MIGRATOR_SHARED)")
    return DATA / name


def load_chinook(base: Base) -> None:
    """Chinook, without the lines that make and choose a database."""
    if base.dialect == "sqlite":
        shutil.copyfile(need("chinook.sqlite"), base.file)
        base.file.chmod(0o644)
        return
    name = "chinook.postgresql.sql" if base.dialect == "postgresql" else "chinook.mysql.sql"
    text = need(name).read_text()
    base.run(re.sub(r"^(DROP DATABASE|CREATE DATABASE|\\c|USE).*$", "", text, flags=re.M))
