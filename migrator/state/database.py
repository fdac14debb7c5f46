"""The database behind a control database: SQLite by default, PostgreSQL by URL.

It is opened with its tables up to date; what its driver raises comes out in words of ours.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from migrator.errors import Failed, Refused, Terminal, Transient
from migrator.ports import StoreSettings
from migrator.write_ahead import write_ahead

HEAD = "0007"
CONTROL = "control database"
"""Where an error of it is said to be."""
_BUSY_SECONDS = 30


def open_database(settings: StoreSettings) -> Engine:
    """Open the database and bring its tables up to date.

    Raises Refused where a newer version of Migrator made them (C58), or for another system.
    """
    engine = _engine(settings)
    with transaction(engine) as c:
        found = _version(c)
        if found is not None and found > HEAD:
            raise Refused(
                f"the control database has version {found}; this Migrator knows {HEAD}",
                hint="use the newer Migrator; nothing was changed",
            )
    if found != HEAD:
        _upgrade(engine)
    return engine


@contextmanager
def transaction(engine: Engine) -> Iterator[Connection]:
    """A short transaction; driver errors come out translated."""
    try:
        with engine.begin() as connection:
            yield connection
    except sa.exc.DBAPIError as error:
        raise _translated(error) from None
    except sa.exc.TimeoutError:
        raise Transient(
            "no connection became free", where=CONTROL, hint="run the same command again"
        ) from None


def _translated(error: sa.exc.DBAPIError) -> Failed:
    """An error of the control database as one of ours."""
    text = str(error.orig).strip().splitlines()[0] if error.orig else str(error)
    if isinstance(error, sa.exc.OperationalError) and (
        error.connection_invalidated or "locked" in text or "connect" in text
    ):
        hint = "see that it runs and can be reached, then run the same command again"
        return Transient(text, where=CONTROL, unknown=True, hint=hint)
    hints = {
        "full": "free disk space, then run the same command again",
        "No space left": "free disk space, then run the same command again",
        "disk I/O": "check the disk and what is free on it, then run the same command again",
        "read-only": "see why its server takes no writes, then run the same command again",
        "readonly": "give the user who runs migrator the right to write it",
        "unable to open": "check that its folder is there and may be written",
    }
    hint = next((hint for word, hint in hints.items() if word in text), "")
    return Terminal(text, where=CONTROL, hint=hint)


def _engine(settings: StoreSettings) -> Engine:
    url = sa.make_url(settings.url)
    if url.get_backend_name() == "sqlite":
        if url.database:
            file = Path(settings.root, url.database)
            file.parent.mkdir(parents=True, exist_ok=True)
            url = url.set(database=str(file))
        engine = sa.create_engine(url, connect_args={"timeout": _BUSY_SECONDS})
        sa.event.listen(engine, "connect", _set_up_sqlite)
        return engine
    if url.get_backend_name() != "postgresql":
        raise Refused(
            f"the control database lies on SQLite or PostgreSQL, not on {url.drivername}",
            where=CONTROL,
        )
    engine = sa.create_engine(url.set(drivername="postgresql+psycopg"), pool_pre_ping=True)

    @sa.event.listens_for(engine, "do_connect")
    def fetch_password(
        _dialect: object, _record: object, _args: object, given: dict[str, str]
    ) -> None:
        if settings.secret is not None:
            given["password"] = settings.secret()

    return engine


def _set_up_sqlite(connection: object, _record: object) -> None:
    raw = cast("sqlite3.Connection", connection)
    write_ahead(raw, _BUSY_SECONDS)
    raw.execute("PRAGMA synchronous = FULL")


def _version(c: Connection) -> str | None:
    if not sa.inspect(c).has_table("migrator_state_version"):
        return None
    row = c.execute(sa.text("SELECT version_num FROM migrator_state_version")).first()
    return None if row is None else str(row[0])


_UPGRADE_LOCK = 0x6D69677261746F72


def _upgrade(engine: Engine) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "schema"))
    with transaction(engine) as c:
        # One at a time, all or nothing: the driver of SQLite would commit each table alone.
        if c.dialect.name == "sqlite":
            c.exec_driver_sql("BEGIN IMMEDIATE")
        else:
            c.execute(sa.text("SELECT pg_advisory_xact_lock(:name)"), {"name": _UPGRADE_LOCK})
        if _version(c) == HEAD:
            return  # somebody else was faster
        config.attributes["connection"] = c
        command.upgrade(config, HEAD)
