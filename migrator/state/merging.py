"""What many processes report, each in a row of its own: those that are silent are added up in one.

A process keeps all that it found so far in its row. Where there are many rows, those that were not
written for a while are added to one and go; so short-lived processes leave no more of them than
live at a time. Nobody has to know for that who is gone: one that finds its row gone goes on in
another, with what it has found since.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import sqlalchemy as sa

from migrator.state import tables as t

T = TypeVar("T")

MOST = 32
"""So many rows of one class and reign are left as they are."""
QUIET = 60.0
"""Seconds without a report after which a row is added to others. By the clocks of several hosts:
one that is wrong costs rows, and nothing else."""
_AT_ONCE = 200


@dataclass
class Part:
    """What one process reports in its row. ``there``: the row was made; ``told`` is all that was
    reported so far, ``before`` what of it was added to others."""

    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    there: bool = False
    told: dict[str, int] = field(default_factory=dict)
    before: dict[str, int] = field(default_factory=dict)

    def report(
        self, counts: Mapping[str, int], keep: Callable[[str, dict[str, int], bool], bool]
    ) -> None:
        """Report all that was counted. ``keep`` is given the row's name, what belongs there, and
        whether it must be there already; False where it is gone."""
        if not keep(self.name, self._since(counts), self.there):
            self.before, self.told = self.told, {}
            self.name, self.there = uuid.uuid4().hex, False
            keep(self.name, self._since(counts), False)
        self.there, self.told = True, dict(counts)

    def _since(self, counts: Mapping[str, int]) -> dict[str, int]:
        return {name: count - self.before.get(name, 0) for name, count in counts.items()}


@dataclass(frozen=True)
class Rows(Generic[T]):
    """The rows of one table, by run, move, epoch and instance. ``kind`` tells which are added up
    together, and is the name of the row that these come to; ``kinds`` are all such names."""

    table: sa.Table
    read: Callable[[str, Mapping[str, object], float], T]
    told: Callable[[T], Mapping[str, object]]
    add: Callable[[Sequence[T]], T]
    kind: Callable[[T], str]
    kinds: Sequence[str]

    def keep(
        self, c: sa.Connection, of: Mapping[str, object], name: str, found: T, *, there: bool
    ) -> bool:
        """Keep a row; False where it had to be ``there`` and is gone."""
        table, key = self.table, {**of, "instance": name}
        here = [table.c[column] == value for column, value in key.items()]
        values = {"at": time.time(), "found": json.dumps(self.told(found))}
        if not c.execute(table.update().where(*here).values(**values)).rowcount:
            if there:
                return False
            if t.make(c, table, {**key, **values}):
                self._merge(c, of, name)
            else:
                c.execute(table.update().where(*here).values(**values))
        return True

    def _merge(self, c: sa.Connection, of: Mapping[str, object], new: str) -> None:
        """Add up the silent rows, where there are many. Whoever else does it takes others; who
        writes to one of them meanwhile waits, and finds it gone."""
        r = self.table.c
        same = [r[column] == value for column, value in of.items()]
        if c.execute(sa.select(sa.func.count()).where(*same)).scalar_one() <= MOST:
            return
        silent = (
            sa.select(r.instance, r.found, r.at)
            .where(*same, r.at < time.time() - QUIET, r.instance.not_in([new, *self.kinds]))
            .order_by(r.at)
            .limit(_AT_ONCE)
            .with_for_update(skip_locked=True)
        )
        by: dict[str, list[T]] = {}
        rows = c.execute(silent).all()
        for name, text, at in rows:
            found = self.read(name, json.loads(text), at)
            by.setdefault(self.kind(found), []).append(found)
        last = max((at for _, _, at in rows), default=0.0)
        for kind, some in by.items():
            self._add(c, of, kind, some, last)
        gone = [name for name, _, _ in rows]
        c.execute(self.table.delete().where(*same, r.instance.in_(gone)))

    def _add(
        self, c: sa.Connection, of: Mapping[str, object], kind: str, some: Sequence[T], at: float
    ) -> None:
        r, key = self.table.c, {**of, "instance": kind}
        values = {"at": at, "found": json.dumps(self.told(self.add(some)))}
        if t.make(c, self.table, {**key, **values}):
            return
        here = [r[column] == value for column, value in key.items()]
        text, before = c.execute(sa.select(r.found, r.at).where(*here).with_for_update()).one()
        both = [self.read(kind, json.loads(text), before), *some]
        values = {"at": max(at, before), "found": json.dumps(self.told(self.add(both)))}
        c.execute(self.table.update().where(*here).values(**values))
