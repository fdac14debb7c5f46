"""Where two values, or two blocks, differ: by canonical form, named by access path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from migrator.model.block import EXPIRES, Block
from migrator.model.canonical import equal
from migrator.model.path import child
from migrator.model.rules import Entries
from migrator.model.value import Value, kind_of, show

SHOWN = 60


class _Missing(Enum):
    MISSING = 0


MISSING = _Missing.MISSING


@dataclass(frozen=True)
class Difference:
    """One place where two sides differ; MISSING where a side has nothing there."""

    path: str
    left: Value
    right: Value

    def text(self, *, masked: bool = False) -> str:
        """How it is told to people: ``path: 1 (int32) / 1.0 (double)``."""
        sides = [_side(side, masked) for side in (self.left, self.right)]
        return f"{show(self.path) or '(whole)'}: {sides[0]} / {sides[1]}"


def _side(value: Value, masked: bool) -> str:
    if value is MISSING:
        return "nothing"
    kind = kind_of(value)
    if masked:
        return f"*** ({kind})"
    text = show(value)
    return f"{text if len(text) <= SHOWN else text[: SHOWN - 1] + '…'} ({kind})"


def differences(left: Value, right: Value, path: str = "") -> Iterator[Difference]:
    """The deepest places at which two values differ, in order of their paths."""
    if left is not MISSING and right is not MISSING:
        if equal(left, right):
            return
        if type(left) is dict and type(right) is dict:
            for name in sorted(left.keys() | right.keys()):
                there = left.get(name, MISSING), right.get(name, MISSING)
                yield from differences(*there, child(path, name))
            return
        if type(left) is list and type(right) is list:
            for i in range(max(len(left), len(right))):
                here = left[i] if i < len(left) else MISSING
                other = right[i] if i < len(right) else MISSING
                yield from differences(here, other, f"{path}[{i}]")
            return
    if left is not right:
        yield Difference(path, left, right)


@dataclass(frozen=True)
class EntryChanges:
    """What turns one block into another, entry by entry."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


def entry_changes(old: Entries, new: Entries) -> EntryChanges:
    """The entries to add, change and remove."""
    return EntryChanges(
        tuple(path for path in new if path not in old),
        tuple(path for path in new if path in old and not equal(old[path], new[path])),
        tuple(path for path in old if path not in new),
    )


def same_block(left: Block, right: Block) -> bool:
    """Whether two blocks hold equal entries and the same deadline, to the second."""
    if left.entries.keys() != right.entries.keys() or not same_deadline(left, right):
        return False
    # One comparison of all entries at once is what makes verification as fast as copying.
    return equal(list(left.entries.values()), [right.entries[path] for path in left.entries])


def same_deadline(left: Block, right: Block) -> bool:
    """Whether two blocks end at the same time, to the second, or never."""
    if left.expires is None or right.expires is None:
        return left.expires is right.expires
    return left.expires // 1000 == right.expires // 1000


def block_differences(left: Block, right: Block) -> Iterator[Difference]:
    """Every place at which two blocks differ, the deadline as path ``EXPIRES``."""
    if not same_deadline(left, right):
        yield Difference(EXPIRES, left.expires, right.expires)
    for path in sorted(left.entries.keys() | right.entries.keys()):
        sides = left.entries.get(path, MISSING), right.entries.get(path, MISSING)
        yield from differences(*sides, path)
