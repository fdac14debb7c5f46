"""A note on PostgreSQL, MariaDB and MySQL: a table with one row."""

# ruff: noqa: S608 - the name is of small letters, digits and _, every value a parameter
from __future__ import annotations

from sqlalchemy.engine import Connection

from migrator.stores.sql.engine import Database

_THERE = {
    "postgresql": "SELECT to_regclass(%s)",
    "mysql": "SELECT max(table_name) FROM information_schema.tables "
    "WHERE table_schema = database() AND table_name = %s",
}
_MAKE = "CREATE TABLE IF NOT EXISTS {} (id int PRIMARY KEY, text {} NOT NULL)"


class ServerNote:
    """Made with its first text, dropped with its last."""

    def __init__(self, database: Database, where: str, name: str) -> None:
        self._database = database
        self._where = where
        self._name = name
        self._postgresql = database.dialect == "postgresql"

    def read(self) -> str | None:
        with self._database.reading(self._where) as c:
            return self._held(c)

    def _held(self, c: Connection, lock: str = "") -> str | None:
        if c.exec_driver_sql(_THERE[self._database.dialect], (self._name,)).scalar() is None:
            return None
        held = c.exec_driver_sql(f"SELECT text FROM {self._name}{lock}").scalar()
        return held.decode() if isinstance(held, bytes) else held

    def change(self, old: str | None, new: str | None) -> bool:
        with self._database.writing(self._where) as c:
            if old is None:
                return new is not None and self._begin(c, new)
            if self._held(c, " FOR UPDATE") != old:
                return False
            if new is None:
                c.exec_driver_sql(f"DROP TABLE {self._name}")
            else:
                c.exec_driver_sql(f"UPDATE {self._name} SET text = %s", (new,))
            return True

    def _begin(self, c: Connection, text: str) -> bool:
        if self._postgresql:
            # Two that make one table at once would fail there, each by the other.
            c.exec_driver_sql("SELECT pg_advisory_xact_lock(hashtext(%s))", (self._name,))
        c.exec_driver_sql(_MAKE.format(self._name, "text" if self._postgresql else "blob"))
        if self._postgresql:
            # Gateways read it, and may be other roles than Migrator.
            c.exec_driver_sql(f"GRANT SELECT ON {self._name} TO PUBLIC")
            put = f"INSERT INTO {self._name} VALUES (1, %s) ON CONFLICT DO NOTHING"
        else:
            put = f"INSERT IGNORE INTO {self._name} VALUES (1, %s)"
        return c.exec_driver_sql(put, (text,)).rowcount == 1
