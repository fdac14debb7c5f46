"""Who gives the numbers that blocks are known by, on either side (hard case C50).

Tables may number their rows: that is moved on at the cut-over, and at a rollback. A counter of the
application's own (a document of MongoDB that is added to, an INCR of Redis, an attribute of
DynamoDB, a row that Cassandra changes on condition) is no part of a collection, and nobody but the
application knows of it.
"""

from __future__ import annotations

from migrator.journal import Numbering
from migrator.model.plan import Severity
from migrator.model.value import Int64, Value
from migrator.ports import Collection
from migrator.route import Route


class Counters:
    """Looks at the keys of a source."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._seen = self._highest = 0

    def add(self, id: Value) -> None:
        """Take a key into account."""
        if type(id) is int or type(id) is Int64:
            self._seen += 1
            self._highest = max(self._highest, id)

    def told(self, read: int, *, sampled: bool) -> tuple[Severity, str, str] | None:
        """What to tell of counters, of so many blocks that were read; None for nothing."""
        route = self._route
        if not self._seen or self._seen < read or route.changes_key or route.spreads:
            return None
        gives, takes = _numbers(route.source), _numbers(route.target)
        if gives is None or (gives and takes is not False):
            return None  # nothing counts, or what does is moved on
        up_to = f"up to {self._highest:,}" + (" in the sample" if sampled else "")
        if gives:
            return (
                "warning", "W124",
                f"{route.source_at} gives numbers to its blocks ({up_to}), and "
                f"{route.move.target} gives none: what makes them from the cut-over on has to "
                "begin above all that were given by then",
            )  # fmt: skip
        behind = (
            "it is left behind where the target numbers on by itself: move it past the highest "
            "before a rollback"
            if takes
            else "it is no part of the move: carry it along at the cut-over, past the highest"
        )
        return (
            "note", "N125",
            f"keys are whole numbers ({up_to}), which {route.source_at} does not give by itself: "
            f"if a counter of the application's makes them, {behind}",
        )  # fmt: skip


def _numbers(side: Collection) -> bool | None:
    return isinstance(side, Numbering) and side.numbers()
