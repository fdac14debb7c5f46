"""Keys that the target can't tell apart, and references that lead nowhere."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator

from migrator.errors import Refused
from migrator.model.block import Aggregate, Block, name
from migrator.model.canonical import encode, equal
from migrator.model.path import child, escape, lookup, parse_path
from migrator.model.value import Ref, Set, Value, walk
from migrator.planning.tally import Issues
from migrator.ports import Collection
from migrator.retry import Retry
from migrator.route import Route, read_each

# References that are looked up in one request: a block may hold any number.
AT_ONCE = 1_000
# So many that were looked up are remembered, so as not to look them up again.
_REMEMBERED = 100_000


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
            first = self._row(form)
            assert first is not None
            self._collides(issues, shown, first[0])

    def close(self, folded: Iterator[Value], issues: Issues) -> None:
        """Look for folded keys that are also there as they are; ``folded`` are those keys."""
        for id in folded:
            form = encode(id)
            if form != encode(self._route.target.same_key(id)):
                continue
            row = self._row(form)
            if row is not None:
                self._collides(issues, self._route.name(id), row[0])
        self._file.close()

    def _row(self, form: bytes) -> tuple[str] | None:
        """How the key was shown that was kept in this form first; None for none."""
        query = "SELECT shown FROM folded WHERE key = ?"
        row: tuple[str] | None = self._file.execute(query, (form,)).fetchone()
        return row

    def expects(self, id: Value) -> bool:
        """Whether an evolution makes this key; known only where one makes the keys at all."""
        return self._all and self._row(encode(self._route.target.same_key(id))) is not None

    @property
    def any(self) -> bool:
        """Whether a key was folded at all, so that the others are to be looked for."""
        return not self._all and self._file.execute("SELECT 1 FROM folded").fetchone() is not None

    def _collides(self, issues: Issues, one: str, other: str) -> None:
        text = f"keys that {self._route.move.target} can't tell apart, such as {one} and {other}"
        issues.add("error", "E108", text, key=one)


class Dangling:
    """Finds references to aggregates that are not there, each once; ``hides`` tells at which paths
    none may be shown.

    What was looked up is forgotten when it grows, so that memory is bounded. What dangles is kept
    in a temporary file: it is counted, and looked up once more would be counted twice.
    """

    def __init__(
        self,
        there: dict[str, Collection],
        retry: Retry,
        hides: Callable[[str], bool] | None = None,
    ) -> None:
        self._there = there
        self._retry = retry
        self._hides = hides
        self._seen: set[bytes] = set()
        self._file = sqlite3.connect("")
        self._file.execute("CREATE TABLE told (form BLOB PRIMARY KEY) WITHOUT ROWID")

    def of(self, blocks: list[Block]) -> Iterator[str]:
        """Those of some blocks that were not given yet, by name."""
        there, hides, seen = self._there, self._hides, self._seen
        if not there:
            return  # no class is moved that others may refer to
        wanted: dict[str, dict[bytes, Value]] = {cls: {} for cls in there}
        hidden: set[bytes] = set()
        for block in blocks:
            for path, ref in _references(block, placed=hides is not None):
                form = encode(ref)
                if hides is not None and hides(path):
                    hidden.add(form)
                if ref.cls in wanted and form not in seen:
                    wanted[ref.cls][form] = ref.id
                    seen.add(form)
        for cls, refs in wanted.items():
            forms, ids = list(refs), list(refs.values())
            for start in range(0, len(ids), AT_ONCE):
                some = ids[start : start + AT_ONCE]
                for i, held in enumerate(read_each(there[cls], some, self._retry), start):
                    if held is None and self._is_new(forms[i]):
                        yield f"{cls}:***" if forms[i] in hidden else name(cls, ids[i])
        if len(seen) > _REMEMBERED:
            seen.clear()

    def _is_new(self, form: bytes) -> bool:
        insert = "INSERT INTO told VALUES (?) ON CONFLICT DO NOTHING"
        return bool(self._file.execute(insert, (form,)).rowcount)

    def close(self) -> None:
        self._file.close()


def _references(block: Block, *, placed: bool) -> Iterable[tuple[str, Ref]]:
    """The references of a block; with their paths where these are asked for, which takes longer."""
    if placed:
        return [ref for path, value in block.entries.items() for ref in _placed(path, value)]
    found: list[tuple[str, Ref]] = []

    def visit(value: Value) -> None:
        if type(value) is Ref:
            found.append(("", value))

    for value in block.entries.values():
        walk(value, visit)
    return found


def _placed(path: str, value: Value) -> Iterator[tuple[str, Ref]]:
    match value:
        case Ref():
            yield path, value
        case dict():
            for field, item in value.items():
                yield from _placed(child(path, field), item)
        case list():
            for i, item in enumerate(value):
                yield from _placed(f"{path}[{i}]", item)
        case Set():
            for item in value:
                yield from _placed(path, item)


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
