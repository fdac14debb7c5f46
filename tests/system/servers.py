"""Databases on test servers by the plain drivers, never through a store of ours."""

from __future__ import annotations

import datetime as dt
import time
from decimal import Decimal
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import psycopg
import pymongo
import pymysql
from bson.datetime_ms import DatetimeMS

from migrator.model.value import Binary, Instant, Value
from tests.system.kit import Odd

_READERS = (
    "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
    "WHERE database = %s AND active"
)


class MakeDatabase(Protocol):
    def __call__(self, server: str, name: str = "") -> str: ...


def connect_postgresql(url: str) -> psycopg.Connection[Any]:
    """An autocommitting session in UTC."""
    return psycopg.connect(url, autocommit=True, options="-c TimeZone=UTC")


def connect_mariadb(url: str, **options: Any) -> pymysql.Connection[Any]:
    """An autocommitting session in UTC that hands out text as text."""
    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname or "",
        port=parts.port or 3306,
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
        database=parts.path.strip("/") or None,
        charset="utf8mb4",
        autocommit=True,
        init_command="SET time_zone = '+00:00'",
        **options,
    )


def connect_mongodb(url: str) -> pymongo.MongoClient[dict[str, Any]]:
    # SecantusDB keeps ten thousand writes that may be repeated, and looks through them at each.
    return pymongo.MongoClient(url, tz_aware=True, retryWrites=False)


def held_by_mongodb(url: str) -> Odd:
    """What SecantusDB in Python can't hold and mongod can: dates out of the years 1 to 9999, and
    keys that it takes for one another: decimals that are no doubles, the largest numbers,
    and bytes of several subtypes."""
    with connect_mongodb(url) as client:
        scratch = client.get_default_database("migrator_system")["far_dates"]
        try:
            scratch.insert_one({"t": DatetimeMS(253_402_300_800_000)})
        except pymongo.errors.PyMongoError:
            return Odd(_is_far_date, _is_confused)
        finally:
            scratch.drop()
    return Odd()


def _is_far_date(value: Value) -> bool:
    if type(value) is dt.datetime and value.tzinfo is not None:
        offset = value.utcoffset() or dt.timedelta()
        return value.replace(tzinfo=None) - dt.datetime.min < offset
    return type(value) is Instant and value.nanos % 1_000_000 == 0


def _is_confused(key: Value) -> bool:
    if type(key) is Binary:
        return True
    if not isinstance(key, (float, Decimal)) or key != key or not key:
        return False
    return not 1e-300 < abs(key) < 1e300 or Decimal(float(key)) != key


def create(server: str, url: str, database: str) -> None:
    """Make an empty database; MongoDB makes its own."""
    if server == "postgresql":
        with connect_postgresql(url) as connection:
            connection.execute(f'CREATE DATABASE "{database}"')  # type: ignore[call-overload]
    elif server == "mariadb":
        with connect_mariadb(url) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{database}` CHARACTER SET utf8mb4")


def drop(server: str, url: str, database: str) -> None:
    """Remove a database with all in it, were it there."""
    if server == "postgresql":
        with connect_postgresql(url) as connection:
            # The server's side of a feed may not have heard yet that its reader has gone.
            end = time.monotonic() + 60
            while connection.execute(_READERS, [database]).fetchall() and time.monotonic() < end:
                time.sleep(0.05)
            connection.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)')  # type: ignore[call-overload]
    elif server == "mariadb":
        with connect_mariadb(url) as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS `{database}`")
    else:
        with connect_mongodb(url) as client:
            client.drop_database(database)


def rows(server: str, url: str, query: str, arguments: tuple[Any, ...] = ()) -> list[Any]:
    """The answer to one query of a relational server."""
    if server == "postgresql":
        with connect_postgresql(url) as connection:
            return connection.execute(query, arguments).fetchall()  # type: ignore[call-overload,no-any-return]
    with connect_mariadb(url) as connection, connection.cursor() as cursor:
        cursor.execute(query, arguments)
        return list(cursor.fetchall())


def do(server: str, url: str, statement: str) -> None:
    """Carry out a statement on a relational server."""
    if server == "postgresql":
        with connect_postgresql(url) as connection:
            connection.execute(statement)  # type: ignore[call-overload]
        return
    with connect_mariadb(url) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
