"""Running totals of a survey: kinds by path, sizes, and findings with a few sample keys.

Memory is bounded: a class with more kinds of path than ``MAX_PATHS`` is told as such, and
of each finding only the first keys are kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from migrator.holding import CONTAINERS, Holding, general
from migrator.model.block import Block
from migrator.model.path import child
from migrator.model.plan import Finding, Severity, Sizes
from migrator.model.value import Kind, Record, Value, kind_of, show
from migrator.ports import ByPath, Capabilities, Collection, Held, How

MAX_PATHS = 2_000
SAMPLE_KEYS = 5
MOST_OF_A_CODE = 200


# An apostrophe within a word begins no quote.
_VALUES = re.compile(r"""(?<!\w)'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|-?\d[\d,.:+-]*""")


@dataclass
class Issue:
    """A finding that is still being counted."""

    severity: Severity
    code: str
    text: str
    path: str = ""
    count: int = 0
    keys: list[str] = field(default_factory=list)

    def add(self, key: str) -> None:
        self.count += 1
        if len(self.keys) < SAMPLE_KEYS and key not in self.keys:
            self.keys.append(key)

    def finding(self, cls: str) -> Finding:
        return Finding(
            code=self.code, severity=self.severity, text=show(self.text), cls=cls,
            path=show(self.path),
            count=self.count, keys=self.keys,
        )  # fmt: skip


class Issues:
    """Findings of one move, by code, path and text."""

    def __init__(self) -> None:
        # Reasons that differ in numbers and quoted values alone are one, told by the first.
        self._by: dict[tuple[str, str, str], Issue] = {}
        self._of_code: dict[str, int] = {}

    def add(
        self, severity: Severity, code: str, text: str, *, key: str = "", path: str = ""
    ) -> None:
        reason = _VALUES.sub("#", text) if key else text
        if (code, path, reason) not in self._by:
            # Paths and reasons can be as many as blocks.
            if self._of_code.get(code, 0) >= MOST_OF_A_CODE:
                path, text = "", "more of the same, at other paths or for other reasons"
                reason = text
            self._of_code[code] = self._of_code.get(code, 0) + 1
        issue = self._by.setdefault((code, path, reason), Issue(severity, code, text, path))
        if key:
            issue.add(key)

    def findings(self, cls: str) -> list[Finding]:
        return [issue.finding(cls) for issue in self._by.values()]


_Row: TypeAlias = tuple[Kind, Held]


class _Node:
    """One general path: how many values of each kind stand there, and what lies below.

    Values held as their kind is held are counted by kind alone, which hashes fast.
    """

    __slots__ = ("below", "counts", "items", "path")

    def __init__(self, path: str | None) -> None:
        self.path = path
        self.counts: dict[Kind | _Row, int] = {}
        self.below: dict[str, _Node] = {}
        self.items: _Node | None = None


class Kinds:
    """Counts the kinds of value at each path, as the target would hold them.

    Also looks for what is ``told`` (what the target refuses, at least) and how deep a value
    nests, since each value is visited here anyway: of all that planning does to a block this
    costs most.
    """

    def __init__(
        self, target: Collection, capabilities: Capabilities, told: Sequence[How] = (How.REFUSED,)
    ) -> None:
        self._needs_tag = target.needs_tag
        self._at = target.needs_tag_at if isinstance(target, ByPath) else None
        self._held = capabilities.kinds
        self._hows = frozenset(told)
        self._odd = {kind for kind, held in self._held.items() if held.how in self._hows}
        self.holding = Holding(target, capabilities.kinds)
        # Items of the other kinds can be counted together.
        self._singly = self._odd | {Kind.RECORD, Kind.LIST, Kind.SET}
        self._roots: dict[str, _Node] = {}
        self._any_odd = False
        self._nodes = 0
        self.longest_name = 0
        # Stands for all paths beyond MAX_PATHS: what is refused there is found all the same.
        self._others = _Node(None)
        self._others.items = self._others
        self.overflow = False

    def add(self, path: str, value: Value) -> tuple[int, bool]:
        """Count a value and what is in it: how deep it nests, and whether some of it is told."""
        at = general(path)
        root = self._roots.get(at)
        if root is None:
            # An entry's path names an attribute or a column in some layouts.
            self.longest_name = max(self.longest_name, name_bytes(path))
            root = self._node(at)
            if root is not self._others:
                self._roots[at] = root
        self._any_odd = False
        return self._walk(root, value), self._any_odd

    def refusals(self, block: Block) -> list[tuple[str, Kind]]:
        """What of a block the target refuses, and where; slow, for the few blocks that ask."""
        odd = (each for entry in block.entries.items() for each in self.holding.odd(*entry))
        return [(path, kind) for path, kind, held in odd if held.how is How.REFUSED]

    def _node(self, path: str) -> _Node:
        if self._nodes >= MAX_PATHS:
            self.overflow = True
            return self._others
        self._nodes += 1
        return _Node(path)

    def _walk(self, node: _Node, value: Value) -> int:
        """Count a value; how deep containers nest in it."""
        kind = kind_of(value)
        counts = node.counts
        held = self._needs_tag(value)
        if held is None and self._at is not None and kind in CONTAINERS and node.path is not None:
            held = self._at(node.path, value)
        if held is None:
            counts[kind] = counts.get(kind, 0) + 1
            if kind in self._odd:
                self._any_odd = True
        else:
            counts[kind, held] = counts.get((kind, held), 0) + 1
            if held.how in self._hows:
                self._any_odd = True
        if kind is Kind.RECORD:
            return self._walk_record(node, value)  # type: ignore[arg-type]
        if kind is Kind.LIST or kind is Kind.SET:
            return self._walk_items(node, value)  # type: ignore[arg-type]
        return 0

    def _walk_items(self, node: _Node, value: Sequence[Value]) -> int:
        items = node.items
        if items is None:
            items = node.items = self._node(f"{node.path}[*]")
        kinds = {*map(kind_of, value)}
        if (
            len(kinds) == 1
            and kinds.isdisjoint(self._singly)
            and not any(map(self._needs_tag, value))
        ):
            kind = kinds.pop()
            items.counts[kind] = items.counts.get(kind, 0) + len(value)
            return 1
        walk = self._walk
        return 1 + max([walk(items, item) for item in value], default=0)

    def _walk_record(self, node: _Node, record: Record) -> int:
        deepest = 0
        nodes = node.below
        for name, item in record.items():
            below = nodes.get(name)
            if below is None:
                self.longest_name = max(self.longest_name, name_bytes(name))
                below = self._node(child(node.path or "", name))
                if below is not self._others:
                    nodes[name] = below
            deep = self._walk(below, item)
            if deep > deepest:
                deepest = deep
        return deepest + 1

    def counted(self) -> Iterator[tuple[str, Kind, Held, int]]:
        """Every path with the kinds that stand there."""
        for path, root in self._roots.items():
            # A plan is text for people: a name with half a surrogate pair is shown escaped.
            for at, row, count in self._below(path, root):
                kind, held = row if isinstance(row, tuple) else (row, self._held[row])
                yield show(at), kind, held, count

    def _below(self, path: str, node: _Node) -> Iterator[tuple[str, Kind | _Row, int]]:
        for row, count in node.counts.items():
            yield path, row, count
        for name, below in node.below.items():
            yield from self._below(child(path, name), below)
        if node.items is not None and node.items is not self._others:
            yield from self._below(path + "[*]", node.items)

    def by_path(self) -> dict[str, dict[Kind, int]]:
        """How many values of each kind stand at each path."""
        found: dict[str, dict[Kind, int]] = {}
        for path, kind, _, count in self.counted():
            at = found.setdefault(path, {})
            at[kind] = at.get(kind, 0) + count
        return found


@dataclass
class Largest:
    """The largest block, key and nesting seen."""

    block: int = 0
    block_key: str = ""
    key: int = 0
    nesting: int = 0

    def add(self, name: str, size: int, key: int, nesting: int) -> None:
        if size > self.block:
            self.block, self.block_key = size, name
        self.key = max(self.key, key)
        self.nesting = max(self.nesting, nesting)

    def sizes(self, capabilities: Capabilities, longest_name: int) -> Sizes:
        limits = capabilities.limits
        return Sizes(
            block=self.block, block_key=self.block_key, block_limit=limits.block_bytes,
            key=self.key, key_limit=limits.key_bytes,
            nesting=self.nesting, nesting_limit=limits.nesting,
            name=longest_name, name_limit=limits.name_bytes,
        )  # fmt: skip


def key_bytes(id: Value) -> int:
    """About how many bytes a key takes: the text it is written as."""
    return len(show(id).encode("utf-8", "surrogatepass"))


def name_bytes(name: str) -> int:
    """The bytes of a field's name."""
    return len(name.encode("utf-8", "surrogatepass"))
