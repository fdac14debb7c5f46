"""Keys that the target can't tell apart, and references that lead nowhere."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from migrator.errors import Refused
from migrator.model.block import Aggregate, Block, name
from migrator.model.canonical import encode, equal
from migrator.model.path import escape, lookup, parse_path
from migrator.model.value import Ref, Value, walk
from migrator.planning.tally import Issues
from migrator.ports import Collection
from migrator.retry import Retry
from migrator.route import Route


class Collisions:
    """Finds source keys that are one key by the target's own comparison (C09).

    Only keys that the target folds are kept, in a temporary file: memory stays bounded. Where
    an evolution makes the keys, any two may be one, and all are kept.
    """

    def __init__(self, route: Route) -> None:
        self._route = route
        self._all = route.changes_key
        self._file = sqlite3.connect("")
        self._file.execute("CREATE TABLE folded (key BLOB PRIMARY KEY, shown TEXT)")

    def add(self, new: Block, issues: Issues) -> None:
        """Take note of a block of the target-to-be."""
        folded = self._route.target.same_key(new.id)
        if folded is new.id and not self._all:
            return
        form = encode(folded)
        if not self._all and form == encode(new.id):
            return
        shown = self._route.name(new.id)
        inserted = self._file.execute(
            "INSERT INTO folded VALUES (?, ?) ON CONFLICT DO NOTHING", (form, shown)
        )
        if not inserted.rowcount:
            (other,) = self._file.execute(
                "SELECT shown FROM folded WHERE key = ?", (form,)
            ).fetchone()
            self._collides(issues, shown, other)

    def close(self, folded: Iterator[Value], issues: Issues) -> None:
        """Look for folded keys that are also there as they are; ``folded`` are those keys."""
        for id in folded:
            form = encode(id)
            if form != encode(self._route.target.same_key(id)):
                continue
            row = self._file.execute("SELECT shown FROM folded WHERE key = ?", (form,)).fetchone()
            if row is not None:
                self._collides(issues, self._route.name(id), row[0])
        self._file.close()

    def expects(self, id: Value) -> bool:
        """Whether an evolution makes this key; known only where one makes the keys at all."""
        form = encode(self._route.target.same_key(id))
        row = self._file.execute("SELECT 1 FROM folded WHERE key = ?", (form,)).fetchone()
        return self._all and row is not None

    @property
    def any(self) -> bool:
        """Whether a key was folded at all, so that the others are to be looked for."""
        return not self._all and self._file.execute("SELECT 1 FROM folded").fetchone() is not None

    def _collides(self, issues: Issues, one: str, other: str) -> None:
        text = f"keys that {self._route.move.target} can't tell apart, such as {one} and {other}"
        issues.add("error", "E108", text, key=one)


def dangling(
    blocks: list[Block], there: dict[str, Collection], seen: set[bytes], retry: Retry
) -> Iterator[str]:
    """References of these blocks to aggregates that are not there, by name.

    ``seen`` keeps what was looked up; it is emptied when it grows, so that memory is bounded.
    """
    if not there:
        return  # no class is moved that others may refer to
    wanted: dict[str, dict[bytes, Value]] = {cls: {} for cls in there}
    for block in blocks:
        for ref in _references(block):
            form = encode(ref)
            if ref.cls in wanted and form not in seen:
                wanted[ref.cls][form] = ref.id
                seen.add(form)
    for cls, refs in wanted.items():
        found = retry(there[cls].read, list(refs.values())) if refs else []
        for id, held in zip(refs.values(), found, strict=True):
            if held is None:
                yield name(cls, id)
    if len(seen) > 100_000:
        seen.clear()


def _references(block: Block) -> list[Ref]:
    found: list[Ref] = []

    def visit(value: Value) -> None:
        if type(value) is Ref:
            found.append(value)

    for value in block.entries.values():
        walk(value, visit)
    return found


class SecretKeys:
    """Finds fields that are declared sensitive and that every key gives away.

    Keys name blocks in plans, logs and messages, so they can't be masked; what is a key of one
    block by chance alone is none.
    """

    def __init__(self, route: Route) -> None:
        self._route = route
        self._paths: set[str] | None = None if route.move.sensitive else set()

    def add(self, aggregate: Aggregate) -> None:
        """Take note of an aggregate."""
        if self._paths is None:
            fields = {escape(field) for field in aggregate.value}
            plain = {path for path in self._route.move.sensitive if "*" not in path}
            self._paths = {f for f in fields if self._route.declares_sensitive(f)} | plain
        if self._paths:
            self._paths = {path for path in self._paths if _gives_away(aggregate, path)}

    def refuse(self) -> None:
        """Raise Refused where there is such a field."""
        for path in sorted(self._paths or ()):
            raise Refused(
                f"{path} is declared sensitive, and it is (a part of) the key, which names blocks "
                "in plans, logs and messages",
                where=str(self._route.source_at),
                hint=f"take {path} out of sensitive, or give the blocks another key in a move "
                "without it before",
            )


def _gives_away(aggregate: Aggregate, path: str) -> bool:
    try:
        value = lookup(aggregate.value, parse_path(path))
    except KeyError:
        return False
    match aggregate.id:
        case list() as parts:
            return any(equal(value, part) for part in parts)
        case dict() as parts:
            return any(equal(value, part) for part in parts.values())
    return equal(value, aggregate.id)
