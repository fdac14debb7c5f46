"""An open relational store: which server it is, and the collections of its layouts."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from migrator.errors import Refused
from migrator.model.move import At
from migrator.model.shape import TableShape
from migrator.ports import Collection, ServerInfo, Store, StoreSettings
from migrator.stores.sql.capabilities import capabilities, tables
from migrator.stores.sql.engine import Database
from migrator.stores.sql.entries_schema import facts

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


class SqlStore:
    """SQLite, PostgreSQL, MariaDB or MySQL; safe for use by several threads."""

    def __init__(self, settings: StoreSettings) -> None:
        self.name = settings.name
        self.settings = settings
        self.database = Database(settings)
        dialect = self.database.dialect
        self.capabilities = capabilities(
            dialect, {"entries": facts(dialect), "tables": tables(dialect)}
        )

    def ping(self) -> ServerInfo:
        """Product, version and what the server can't promise. Raises Terminal or Transient."""
        if self.database.absent:
            return ServerInfo("SQLite", sqlite3.sqlite_version, ("the file does not exist yet",))
        with self.database.reading(self.name) as connection:
            return _SERVERS[self.database.dialect](connection)

    def collection(self, cls: str, at: At) -> Collection:
        """A handle on a location. Raises Refused for a layout or option it does not know."""
        layout = at.layout.name if at.layout else self.capabilities.default_layout
        if layout not in self.capabilities.layouts:
            raise Refused(
                f"layout {layout!r} is not known here",
                where=str(at),
                hint="known are: " + ", ".join(sorted(self.capabilities.layouts)),
            )
        if layout == "entries":
            from migrator.stores.sql.entries import EntriesCollection

            return EntriesCollection(self, cls, at)
        if at.tables is None:
            raise Refused(
                "the layout tables needs to know the tables",
                where=str(at),
                hint=f'write At("{at.store}", tables("{at.collection}", ...))',
            )
        from migrator.stores.sql.tables import TablesCollection

        return TablesCollection(self, cls, at)

    def table_shapes(self) -> list[TableShape]:
        """All tables of the database with their keys, for drafts of scripts."""
        from migrator.stores.sql.outline import shapes

        if self.database.absent:
            return []
        with self.database.reading(self.name) as connection:
            return shapes(connection, self.database.dialect)

    def sibling(self, name: str) -> Store | None:
        """Another store of the same environment, None where stores can't be looked up."""
        return self.settings.sibling(name) if self.settings.sibling else None

    def close(self) -> None:
        """Give back all connections."""
        self.database.close()


def _one(connection: Connection, statement: str) -> Any:
    return connection.exec_driver_sql(statement).scalar_one()


def _sqlite(connection: Connection) -> ServerInfo:
    connection.exec_driver_sql("SELECT count(*) FROM sqlite_master")  # finds what is no database
    return ServerInfo("SQLite", sqlite3.sqlite_version)


def _postgresql(connection: Connection) -> ServerInfo:
    remarks = []
    if _one(connection, "SELECT pg_is_in_recovery()"):
        remarks.append("a standby: reads may be behind the primary, and nothing can be written")
    if _one(connection, "SHOW fsync") == "off":
        remarks.append("fsync is off: a crash of the server may lose acknowledged writes")
    version = str(_one(connection, "SHOW server_version"))
    return ServerInfo("PostgreSQL", version.split()[0], tuple(remarks))


def _mysql(connection: Connection) -> ServerInfo:
    remarks = []
    if int(_one(connection, "SELECT @@innodb_flush_log_at_trx_commit")) != 1:
        remarks.append("innodb_flush_log_at_trx_commit is not 1: a crash may lose writes")
    if int(_one(connection, "SELECT @@read_only")):
        remarks.append("read_only is on: nothing can be written")
    version = str(_one(connection, "SELECT version()"))
    product = "MariaDB" if "mariadb" in version.lower() else "MySQL"
    return ServerInfo(product, version.split("-")[0], tuple(remarks))


_SERVERS = {"sqlite": _sqlite, "postgresql": _postgresql, "mysql": _mysql}
