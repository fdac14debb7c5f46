"""Tables as a relational database describes them: what a script can be drafted from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ForeignKey:
    """Columns of a table that point to columns of another, or of the same one."""

    columns: tuple[str, ...]
    table: str
    refers_to: tuple[str, ...] = ()


@dataclass(frozen=True)
class TableShape:
    """A table: its columns, primary key (empty for none) and foreign keys.

    ``unique`` lists further sets of columns that no two rows share, ``nullable`` the columns
    that may hold NULL. ``name`` is as the store's ``tables`` layout takes it.
    """

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    nullable: frozenset[str] = frozenset()
