"""Running totals of a survey: kinds by path, sizes, and findings with a few sample keys.

Memory is bounded: a class with more kinds of path than ``MAX_PATHS`` is told as such, and
of each finding only the first keys are kept.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from migrator.model.plan import Finding, Severity, Sizes
from migrator.model.rules import general_path
from migrator.model.value import Kind, Ref, Set, Value, depth, kind_of
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
            code=self.code, severity=self.severity, text=self.text, cls=cls, path=self.path,
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


class Kinds:
    """Counts the kinds of value at each path, as the target would hold them."""

    def __init__(self, target: Collection, capabilities: Capabilities) -> None:
        self._target = target
        self._capabilities = capabilities
        self.counts: dict[tuple[str, Kind, Held], int] = {}
        self.paths: dict[str, dict[Kind, int]] = {}
        self.overflow = False

    def add(self, path: str, value: Value) -> list[tuple[str, Kind]]:
        """Count a value and what is in it; the paths of what the target refuses."""
        refused: list[tuple[str, Kind]] = []
        self._walk(general_path(path), value, refused)
        return refused

    def _walk(self, path: str, value: Value, refused: list[tuple[str, Kind]]) -> None:
        kind = kind_of(value)
        held = self._target.needs_tag(value) or self._capabilities.kinds[kind]
        if held.how is How.REFUSED:
            refused.append((path, kind))
        self._count(path, kind, held)
        if type(value) is dict:
            for name, item in value.items():
                self._walk(_below(path, name), item, refused)
        elif type(value) is list or type(value) is Set:
            for item in value:
                self._walk(path + "[*]", item, refused)

    def _count(self, path: str, kind: Kind, held: Held) -> None:
        at = self.paths.get(path)
        if at is None:
            if len(self.paths) >= MAX_PATHS:
                self.overflow = True
                return
            at = self.paths[path] = {}
        at[kind] = at.get(kind, 0) + 1
        self.counts[path, kind, held] = self.counts.get((path, kind, held), 0) + 1


_names: dict[str, str] = {}


def _below(path: str, name: str) -> str:
    from migrator.model.path import escape

    escaped = _names.get(name)
    if escaped is None:
        escaped = escape(name)
        if len(_names) < MAX_PATHS:
            _names[name] = escaped
    return f"{path}.{escaped}" if path else escaped


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
    from migrator.model.value import show

    return len(show(id).encode("utf-8", "surrogatepass")) if not isinstance(id, Ref) else 0
