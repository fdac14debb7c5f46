"""Relational stores: SQLite, PostgreSQL, MariaDB and MySQL, on SQLAlchemy Core.

The drivers are imported when a store is opened, so that nobody needs one he does not use.
"""

from __future__ import annotations

from migrator.errors import Terminal
from migrator.ports import Store, StoreSettings

_EXTRAS = {"postgresql": ("psycopg", "postgresql"), "mysql": ("pymysql", "mysql")}


def open_store(settings: StoreSettings) -> Store:
    """Open a relational store; nothing is sent to the server yet.

    Raises Refused for an option or URL it does not know, Terminal where the driver is missing.
    """
    from migrator.stores.sql.options import dialect_of

    dialect = dialect_of(settings)
    if dialect in _EXTRAS:
        driver, extra = _EXTRAS[dialect]
        try:
            __import__(driver)
        except ImportError:
            raise Terminal(
                f"the driver {driver} is not installed",
                where=settings.name,
                hint=f"pip install migrator[{extra}]",
            ) from None
    from migrator.stores.sql.store import SqlStore

    return SqlStore(settings)


__all__ = ["open_store"]
