"""What becomes of the rows of a table: which are new, which change, which go. Pure: rows in, rows
out."""

from __future__ import annotations

from typing import Any

from migrator.stores.sql.rows import Found
from migrator.stores.sql.shape import Node
from migrator.stores.sql.unfold import Written, canonical, form


class Changes:
    """What becomes of the rows of a table."""

    def __init__(self) -> None:
        self.fresh: list[Written] = []
        self.changed: list[Written] = []
        self.gone: list[list[Any]] = []


def changes_of(node: Node, rows: list[Written], held: list[Found]) -> Changes:
    """What makes the rows of a table these, of those that lie there."""
    changes = Changes()
    if not node.key:
        _keyless(node, rows, held, changes)
        return changes
    places = node.places(node.key)
    there = {form([found.values[i] for i in places]): found.values for found in held}
    for row in rows:
        values = there.pop(row.key, None)
        if values is None:
            changes.fresh.append(row)
        elif not _same(node, row.values, values):
            changes.changed.append(row)
    changes.gone = list(there.values())
    return changes


def _keyless(node: Node, rows: list[Written], held: list[Found], changes: Changes) -> None:
    """Rows without a key are told apart by nothing: a parent's rows stay or go together."""
    places = node.places(node.parent)
    new: dict[bytes, list[Written]] = {}
    old: dict[bytes, list[Found]] = {}
    for row in rows:
        new.setdefault(canonical([row.values[i] for i in places]), []).append(row)
    for found in held:
        old.setdefault(canonical([found.values[i] for i in places]), []).append(found)
    for parent in {**new, **old}:
        wanted = sorted(canonical(row.values) for row in new.get(parent, []))
        if wanted != sorted(canonical(found.values) for found in old.get(parent, [])):
            changes.fresh.extend(new.get(parent, []))
            # The row stands for all of its parent's, which may lie there unseen (moved).
            first: list[Any] = [*old.get(parent, []), *new.get(parent, [])]
            changes.gone.append(first[0].values)


_SIMPLE = frozenset((str, int, bool, bytes, type(None)))


def _same(node: Node, wanted: list[Any], held: list[Any]) -> bool:
    # Most rows stay as they are, and of simple values Python can tell it at once.
    if wanted == held:
        types = [*map(type, wanted)]
        if _SIMPLE.issuperset(types) and types == [*map(type, held)]:
            return True
    made = [codec.column.generated is not None for codec in node.codecs]
    left = [x for x, generated in zip(wanted, made, strict=True) if not generated]
    right = [x for x, generated in zip(held, made, strict=True) if not generated]
    return canonical(left) == canonical(right)


def parents_first(node: Node, rows: list[Written]) -> list[Written]:
    """Rows that other rows of their own table refer to, before those."""
    links = [key for key in node.info.foreign if key.table == node.info.name]
    if not links or len(rows) < 2:
        return rows
    (link, *_) = links
    refs, mine = node.places(link.refs), node.places(link.columns)
    by_key = {canonical([row.values[i] for i in refs]): row for row in rows}
    done: dict[int, Written] = {}
    for row in rows:
        chain: list[Written] = []
        at: Written | None = row
        while at is not None and id(at) not in done and at not in chain:
            chain.append(at)
            at = by_key.get(canonical([at.values[i] for i in mine]))
        done.update((id(one), one) for one in reversed(chain))
    return list(done.values())
