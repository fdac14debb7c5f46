"""What a live move needs of a relational collection: its change feed and its fence, by the server.

Each system has a module with the same four functions; it is imported when it is needed, since it
needs that system's driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, cast

from migrator.journal import Fence, Journal, Note
from migrator.stores.sql.note import ServerNote


class Live:
    """Beside a collection; ``_layout`` is the word for its functions."""

    _layout: str

    def journal(self, name: str) -> Journal:
        """Its change feed, for a run of this name."""
        return cast(Journal, self._live("journal", name))

    def fence(self, name: str) -> Fence:
        """Its fence, for a run of this name."""
        return cast(Fence, self._live("fence", name))

    def note(self, name: str) -> Note:
        """The note of this name, in the same database."""
        mine = cast(Any, self)
        if mine.database.dialect == "sqlite":
            from migrator.stores.sql.live_sqlite import note

            return note(mine.database, mine.where, name)
        return ServerNote(mine.database, mine.where, name)

    def _live(self, what: str, name: str) -> Any:
        dialect = cast(Any, self).database.dialect
        module = import_module(f"migrator.stores.sql.live_{dialect}")
        return getattr(module, f"{self._layout}_{what}")(self, name)
