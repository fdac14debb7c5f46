"""Running totals of a survey: kinds by path, sizes, and findings with a few sample keys.

Memory is bounded: a class with more kinds of path than ``MAX_PATHS`` is told as such, and
of each finding only the first keys are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from migrator.model.path import child
from migrator.model.plan import Finding, Severity, Sizes
from migrator.model.rules import general_path
from migrator.model.value import Kind, Value, depth, kind_of, show
from migrator.ports import Capabilities, Collection, Held, How

MAX_PATHS = 2_000
SAMPLE_KEYS = 5


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
        self._by: dict[tuple[str, str, str], Issue] = {}

    def add(
        self, severity: Severity, code: str, text: str, *, key: str = "", path: str = ""
    ) -> None:
        issue = self._by.setdefault((code, path, text), Issue(severity, code, text, path))
        if key:
            issue.add(key)

    def findings(self, cls: str) -> list[Finding]:
        return [issue.finding(cls) for issue in self._by.values()]


class _Node:
    """One general path: how many values of each kind stand there, and what lies below."""

    __slots__ = ("below", "counts", "items")

    def __init__(self) -> None:
        self.counts: dict[tuple[Kind, Held], int] = {}
        self.below: dict[str, _Node] = {}
        self.items: _Node | None = None


class Kinds:
    """Counts the kinds of value at each path, as the target would hold them."""

    def __init__(self, target: Collection, capabilities: Capabilities) -> None:
        self._needs_tag = target.needs_tag
        self._rows = {kind: (kind, held) for kind, held in capabilities.kinds.items()}
        self._roots: dict[str, _Node] = {}
        self._refused: list[tuple[str, Kind]] = []
        self._nodes = 0
        self.overflow = False

    def add(self, path: str, value: Value) -> list[tuple[str, Kind]]:
        """Count a value and what is in it; the paths of what the target refuses."""
        general = general_path(path)
        root = self._roots.get(general)
        if root is None:
            root = self._roots[general] = self._node()
        self._refused = []
        self._walk(root, value, general)
        return self._refused

    def _node(self) -> _Node:
        self._nodes += 1
        return _Node()

    def _walk(self, node: _Node, value: Value, path: str) -> None:
        kind = kind_of(value)
        held = self._needs_tag(value)
        row = self._rows[kind] if held is None else (kind, held)
        counts = node.counts
        counts[row] = counts.get(row, 0) + 1
        if row[1].how is How.REFUSED:
            self._refused.append((path, kind))
        if kind is Kind.RECORD:
            for name, item in value.items():  # type: ignore[attr-defined]
                below = node.below.get(name)
                if below is None:
                    if self._nodes >= MAX_PATHS:
                        self.overflow = True
                        continue
                    below = node.below[name] = self._node()
                self._walk(below, item, path)
        elif kind is Kind.LIST or kind is Kind.SET:
            if node.items is None:
                node.items = self._node()
            for item in value:  # type: ignore[attr-defined]
                self._walk(node.items, item, path)

    def counted(self) -> Iterator[tuple[str, Kind, Held, int]]:
        """Every path with the kinds that stand there."""
        for path, root in self._roots.items():
            # A plan is text for people: a name with half a surrogate pair is shown escaped.
            for at, kind, held, count in _counted(path, root):
                yield show(at), kind, held, count

    def by_path(self) -> dict[str, dict[Kind, int]]:
        """How many values of each kind stand at each path."""
        found: dict[str, dict[Kind, int]] = {}
        for path, kind, _, count in self.counted():
            at = found.setdefault(path, {})
            at[kind] = at.get(kind, 0) + count
        return found


def _counted(path: str, node: _Node) -> Iterator[tuple[str, Kind, Held, int]]:
    for (kind, held), count in node.counts.items():
        yield path, kind, held, count
    for name, below in node.below.items():
        yield from _counted(child(path, name), below)
    if node.items is not None:
        yield from _counted(path + "[*]", node.items)


@dataclass
class Largest:
    """The largest block, key and nesting seen."""

    block: int = 0
    block_key: str = ""
    key: int = 0
    nesting: int = 0

    def add(self, name: str, size: int, key: int, entries: dict[str, Value]) -> None:
        if size > self.block:
            self.block, self.block_key = size, name
        self.key = max(self.key, key)
        self.nesting = max(self.nesting, *map(depth, entries.values()))

    def sizes(self, capabilities: Capabilities) -> Sizes:
        limits = capabilities.limits
        return Sizes(
            block=self.block, block_key=self.block_key, block_limit=limits.block_bytes,
            key=self.key, key_limit=limits.key_bytes,
            nesting=self.nesting, nesting_limit=limits.nesting,
        )  # fmt: skip


def key_bytes(id: Value) -> int:
    """About how many bytes a key takes: the text it is written as."""
    return len(show(id).encode("utf-8", "surrogatepass"))
