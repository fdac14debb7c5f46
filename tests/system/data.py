"""The real data sets of others, where they are at hand; nothing of them is kept here."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from pathlib import Path

import pymysql.constants.CLIENT
import pytest

from tests.system.servers import connect_mariadb, connect_postgresql

SHARED = Path(os.environ.get("MIGRATOR_SHARED", Path(__file__).parents[3] / "shared")) / "data"


def need(name: str) -> Path:
    """A file of the data sets; skips where it is not at hand."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"no {name} in {SHARED} (say where the data sets are by MIGRATOR_SHARED)")
    return path


def load_postgresql(url: str) -> None:
    """Chinook into an empty database, without the lines that make and choose one."""
    text = need("chinook.postgresql.sql").read_text()
    text = re.sub(r"^(DROP DATABASE|CREATE DATABASE|\\c).*$", "", text, flags=re.M)
    with connect_postgresql(url) as connection:
        connection.execute(text)  # type: ignore[call-overload]


def load_mariadb(url: str) -> None:
    """Chinook into an empty database, without the lines that make and choose one."""
    text = need("chinook.mysql.sql").read_text()
    text = re.sub(r"^(DROP DATABASE|CREATE DATABASE|USE).*$", "", text, flags=re.M)
    connection = connect_mariadb(url, client_flag=pymysql.constants.CLIENT.MULTI_STATEMENTS)
    with connection, connection.cursor() as cursor:
        cursor.execute(text)
        while cursor.nextset():
            pass


def load_sqlite(path: Path) -> None:
    """Chinook as a file."""
    shutil.copyfile(need("chinook.sqlite"), path)
    path.chmod(0o644)


def load_northwind(path: Path) -> None:
    """Northwind as a file."""
    text = need("northwind.sqlite.sql").read_text()
    with sqlite3.connect(path) as connection:
        # One transaction: the script's thousands of statements would each wait for the disk.
        connection.executescript(f"BEGIN; {text}; COMMIT;")
