"""Fields of one aggregate in tables of SQLite, changed where they lie.

No row is made of what stays as it is: what is set is columns of the root's row, what is appended
is a row behind the last of its list. Whatever takes more than that is told by None, and is for who
writes the whole: keys and lists, records, nulls and references, positions, an order that only the
file tells.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from migrator.model.canonical import equal
from migrator.model.value import Record, Ref, Value
from migrator.stores.sql.shape import Node
from migrator.stores.sql.unfit import Unfit
from migrator.stores.sql.unfold import comes_behind, row_below
from migrator.stores.sql.upsert import Texts

Asked: TypeAlias = tuple[str, Sequence[Any]]
_MORE = (dict, list, Ref, type(None))
_KEPT = 100  # texts


class Fields:
    """The statements for one collection, whose tables lie at most a level below the root."""

    def __init__(
        self, root: Node, texts: Mapping[Node, Texts], quote: Callable[[str], str], where: str
    ) -> None:
        self._root = root
        self._where = where
        self._quote = quote
        self._columns = {c.name: c for c in root.codecs if c.name not in (*root.key, *root.apart)}
        self._lists = {
            node.name: (node, texts[node].row, texts[node].places)
            for node in root.children
            # Without a unique key nothing would tell of a row that is there already.
            if texts[node].tail and node.position is None and not node.spec.one
        }
        self._updates: dict[tuple[str, ...], str] = {}

    def statements(
        self,
        id: Value,
        key: Sequence[Any],
        record: Record,
        set: Mapping[str, Value],
        append: Mapping[str, Value],
    ) -> list[Asked] | None:
        """What changes an aggregate, which is ``record`` now, under ``key`` as its columns encode
        it; None where that takes more. Raises DoesNotFit for an element that no row holds."""
        asked: list[Asked] = []
        if set:
            given = self._given(record, set)
            if given is None:
                return None
            if given:
                asked.append((self._update(tuple(given)), [*given.values(), *key]))
        for name, item in append.items():
            added = self._added(id, record, name, item)
            if added is None:
                return None
            asked.append(added)
        return asked

    def _given(self, record: Record, set: Mapping[str, Value]) -> dict[str, Any] | None:
        """What the columns that differ are sent."""
        given = {}
        for name, value in set.items():
            codec = self._columns.get(name)
            if codec is None or type(value) in _MORE:
                return None
            try:
                held = codec.encode(value)
            except Unfit:
                return None
            if name not in record or not equal(record[name], value):
                given[name] = held
        return given

    def _update(self, names: tuple[str, ...]) -> str:
        text = self._updates.get(names)
        if text is None:
            if len(self._updates) == _KEPT:
                self._updates.clear()
            sets, of = (
                [f"{self._quote(name)} = ?" for name in some] for some in (names, self._root.key)
            )
            table = self._quote(self._root.info.name)
            text = f"UPDATE OR ABORT {table} SET {', '.join(sets)} WHERE {' AND '.join(of)}"  # noqa: S608
            self._updates[names] = text
        return text

    def _added(self, id: Value, record: Record, name: str, item: Value) -> Asked | None:
        """One row more."""
        held = record.get(name)
        if name not in self._lists or type(held) is not list:
            return None
        node, text, places = self._lists[name]
        if held and not comes_behind(node, held[-1], item):
            return None
        row = row_below(self._root, node, id, item, self._where)
        return text, [row.raw[i] for i in places]


__all__ = ["Fields"]
