"""The triggers that fill an outbox, as statements."""

# ruff: noqa: S608 - every name is quoted, every value a parameter
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

# What ``deleted`` says of a touch. A row that stands in the way of an INSERT or UPDATE may be
# about to be replaced; whether it was, only the trigger behind the change can tell.
KEPT, DELETED, BY_INSERT, BY_UPDATE = 0, 1, 2, 3

Columns: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Link:
    """How rows lead to those of the table above: ``columns`` of theirs hold what ``refs`` hold
    there."""

    columns: Columns
    up: str
    refs: Columns


@dataclass(frozen=True)
class Unique:
    """Columns of which no two rows have the same, by the collation of each; ``partial`` where
    that holds for some rows only."""

    columns: tuple[tuple[str, str], ...]
    partial: bool = False


@dataclass(frozen=True)
class Table:
    """A table whose rows belong to blocks.

    ``links`` lead from its rows up to the root, none for the root itself. ``key`` are the columns
    of the root that make the block's key. ``many``: a block is one or more rows of the root, and
    none where the last of them has gone.
    """

    name: str
    key: Columns
    links: Sequence[Link] = ()
    many: bool = False
    uniques: Sequence[Unique] = field(default=())


def quoted(name: str) -> str:
    """An identifier."""
    return '"' + name.replace('"', '""') + '"'


def outbox(run: str) -> str:
    """The name of a run's outbox."""
    return f"{run}_outbox"


def table(run: str, width: int) -> list[str]:
    """What makes the outbox itself. Keys lie as they are: its columns have no type."""
    name = quoted(outbox(run))
    keys = "".join(f", {key}" for key in key_columns(width))
    return [
        f"CREATE TABLE {name} (seq INTEGER PRIMARY KEY, at REAL DEFAULT (julianday('now')), "
        f"deleted INTEGER, mark TEXT{keys})",
        f"CREATE INDEX {quoted(f'{outbox(run)}_open')} ON {name} (deleted) WHERE deleted >= 2",
    ]


def key_columns(width: int) -> list[str]:
    """The outbox's columns for a key of so many parts."""
    return [f"k{i}" for i in range(width)]


def triggers(run: str, tables: Sequence[Table]) -> dict[str, str]:
    """The statements that make the triggers, by the triggers' names."""
    found: dict[str, str] = {}
    for number, each in enumerate(tables):
        for when, body in _bodies(run, each):
            name = f"{outbox(run)}_{number}_{when.lower().replace(' ', '_')}"
            found[name] = (
                f"CREATE TRIGGER {quoted(name)} {when} ON {quoted(each.name)} FOR EACH ROW BEGIN "
                + " ".join(f"{statement};" for statement in body)
                + " END"
            )
    return found


def _bodies(run: str, table: Table) -> Iterator[tuple[str, list[str]]]:
    touch = _Touching(run, table)
    settle = touch.settle if not table.links else _nothing
    for event, displaced in (("INSERT", BY_INSERT), ("UPDATE", BY_UPDATE)):
        before = touch.displaced(displaced, event == "UPDATE")
        if before:
            yield f"BEFORE {event}", [*settle(BY_INSERT, KEPT), *settle(BY_UPDATE, KEPT), *before]
    yield "AFTER INSERT", [*settle(BY_INSERT, DELETED), touch.of("NEW", KEPT)]
    moved = _differ(table.links[0].columns if table.links else table.key)
    yield (
        "AFTER UPDATE",
        [
            # An INSERT that ended here was an upsert: nothing was replaced.
            *settle(BY_INSERT, KEPT),
            *settle(BY_UPDATE, DELETED),
            touch.of("OLD", KEPT if table.links else DELETED, moved),
            touch.of("NEW", KEPT),
        ],
    )
    yield "AFTER DELETE", [touch.of("OLD", KEPT if table.links else DELETED)]


def _nothing(_: int, __: int) -> list[str]:
    return []


class _Touching:
    """Statements that note the blocks of rows of one table."""

    def __init__(self, run: str, table: Table) -> None:
        self.table = table
        self.outbox = quoted(outbox(run))
        self._into = ", ".join(["deleted", *key_columns(len(table.key))])

    def of(self, row: str, deleted: int, condition: str = "") -> str:
        """The block of a row OLD or NEW."""
        return self._insert(row, str(deleted), "", [condition] if condition else [])

    def displaced(self, deleted: int, update: bool) -> list[str]:
        """The blocks of rows that have the row NEW's place, which REPLACE takes from them."""
        statements = []
        for unique in self.table.uniques:
            names = {name for name, _ in unique.columns}
            if self.table.links and names >= set(self.table.links[0].columns):
                continue  # such a row belongs to the same block
            conditions = [
                f"d.{quoted(n)} = NEW.{quoted(n)} COLLATE {quoted(c)}" for n, c in unique.columns
            ]
            if update:
                kept = (
                    f"OLD.{quoted(n)} IS NEW.{quoted(n)} COLLATE {quoted(c)}"
                    for n, c in unique.columns
                )
                conditions.append(f"NOT ({' AND '.join(kept)})")
            sure = not unique.partial and not self.table.links
            from_ = f"{quoted(self.table.name)} AS d"
            statements.append(self._insert("d", str(deleted if sure else KEPT), from_, conditions))
        return statements

    def settle(self, open_: int, deleted: int) -> list[str]:
        """Say what became of the rows that stood in the way."""
        if not self.table.uniques:
            return []
        return [
            f"UPDATE {self.outbox} SET deleted = {deleted} WHERE deleted >= 2 AND deleted = {open_}"
        ]

    def _insert(self, row: str, deleted: str, from_: str, conditions: list[str]) -> str:
        joins = [from_] if from_ else []
        last = row
        for level, link in enumerate(self.table.links):
            on = [
                f"u{level}.{quoted(ref)} = {last}.{quoted(column)}"
                for column, ref in zip(link.columns, link.refs, strict=True)
            ]
            last = f"u{level}"
            joins.append(f"{quoted(link.up)} AS {last}")
            conditions = [*on, *conditions]
        if self.table.many and deleted == str(DELETED):
            deleted = self._gone(row)
        keys = ", ".join(f"{last}.{quoted(name)}" for name in self.table.key)
        source = f" FROM {', '.join(joins)}" if joins else ""
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return f"INSERT INTO {self.outbox} ({self._into}) SELECT {deleted}, {keys}{source}{where}"

    def _gone(self, row: str) -> str:
        """Whether no row of the block is left."""
        same = " AND ".join(f"r.{quoted(n)} = {row}.{quoted(n)}" for n in self.table.key)
        return f"NOT EXISTS (SELECT 1 FROM {quoted(self.table.name)} AS r WHERE {same})"


def _differ(columns: Columns) -> str:
    """Whether columns have changed, be it in case or kind alone."""
    return " OR ".join(
        f"OLD.{quoted(n)} COLLATE BINARY IS NOT NEW.{quoted(n)} "
        f"OR typeof(OLD.{quoted(n)}) <> typeof(NEW.{quoted(n)})"
        for n in columns
    ).join("()")
