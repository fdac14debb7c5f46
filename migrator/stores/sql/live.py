"""What a live move needs of tables: their change feed and their fence, by the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from migrator.journal import Fence, Journal

if TYPE_CHECKING:
    from migrator.stores.sql.entries import EntriesCollection
    from migrator.stores.sql.options import Dialect
    from migrator.stores.sql.tables import TablesCollection


class Live:
    """Beside ``TablesCollection``."""

    dialect: Dialect

    def journal(self, name: str) -> Journal:
        """Its change feed for a run of this name."""
        collection = cast("TablesCollection", self)
        if self.dialect == "postgresql":
            from migrator.stores.sql.journal_postgresql import PostgresqlJournal

            return PostgresqlJournal(collection, name)
        if self.dialect == "mysql":
            from migrator.stores.sql.live_mysql import tables_journal as on_mysql

            return on_mysql(collection, name)
        from migrator.stores.sql.outbox_sqlite import tables_journal

        return tables_journal(collection, name)

    def fence(self, name: str) -> Fence:
        """Its fence for a run of this name."""
        collection = cast("TablesCollection", self)
        if self.dialect == "postgresql":
            from migrator.stores.sql.fence_postgresql import PostgresqlFence

            return PostgresqlFence(collection, name)
        if self.dialect == "mysql":
            from migrator.stores.sql.live_mysql import tables_fence as on_mysql

            return on_mysql(collection, name)
        from migrator.stores.sql.outbox_sqlite import tables_fence

        return tables_fence(collection, name)


class EntriesLive:
    """Beside ``EntriesCollection``."""

    def journal(self, name: str) -> Journal | None:
        """Its change feed; None where this server has none."""
        collection = cast("EntriesCollection", self)
        if collection.database.dialect == "postgresql":
            return None
        if collection.database.dialect == "mysql":
            from migrator.stores.sql.live_mysql import entries_journal as on_mysql

            return on_mysql(collection, name)
        from migrator.stores.sql.outbox_sqlite import entries_journal

        return entries_journal(collection, name)

    def fence(self, name: str) -> Fence | None:
        """Its fence; None where this server has none."""
        collection = cast("EntriesCollection", self)
        if collection.database.dialect == "postgresql":
            return None
        if collection.database.dialect == "mysql":
            from migrator.stores.sql.live_mysql import entries_fence as on_mysql

            return on_mysql(collection, name)
        from migrator.stores.sql.outbox_sqlite import entries_fence

        return entries_fence(collection, name)
