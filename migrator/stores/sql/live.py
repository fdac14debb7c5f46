"""What a live move needs of tables: their change feed and their fence, by the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from migrator.journal import Fence, Journal

if TYPE_CHECKING:
    from migrator.stores.sql.options import Dialect
    from migrator.stores.sql.tables import TablesCollection


class Live:
    """Beside ``TablesCollection``."""

    dialect: Dialect

    def journal(self, name: str) -> Journal | None:
        """Its change feed; None where this server has none."""
        if self.dialect != "postgresql":
            return None
        from migrator.stores.sql.journal_postgresql import PostgresqlJournal

        return PostgresqlJournal(cast("TablesCollection", self), name)

    def fence(self, name: str) -> Fence | None:
        """Its fence; None where this server has none."""
        if self.dialect != "postgresql":
            return None
        from migrator.stores.sql.fence_postgresql import PostgresqlFence

        return PostgresqlFence(cast("TablesCollection", self), name)
