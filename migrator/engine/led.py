"""What a batch has taken where keys change on the way: which keys lead to which, on either side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from migrator.model.block import Block
from migrator.model.canonical import encode
from migrator.model.value import Value

# What the mirror must hold, by the key of the source that makes it, and by its own.
Made: TypeAlias = dict[bytes, dict[bytes, Block]]


@dataclass(frozen=True)
class Keys:
    """Some keys, each once, by canonical form."""

    forms: dict[bytes, Value] = field(default_factory=dict)

    @classmethod
    def of(cls, *many: Iterable[Value]) -> Keys:
        return cls({encode(key): key for keys in many for key in keys})

    @property
    def values(self) -> list[Value]:
        return list(self.forms.values())


@dataclass
class Led:
    """A key of the primary in a batch: its block, and the keys it leads to, and led to before.

    ``refused`` tells why it makes no block of the mirror, and at which path; ``damaged``, that it
    is no block, so that what it made stays as it is.
    """

    key: Value
    block: Block | None
    before: Keys
    now: Keys = field(default_factory=Keys)
    refused: tuple[str, str] | None = None
    damaged: bool = False

    @property
    def ever(self) -> dict[bytes, Value]:
        return self.before.forms | self.now.forms


@dataclass
class Batch:
    """All that is taken: keys of the primary, and those of the mirror with what led there.
    ``primary`` is a side."""

    primary: str
    led: dict[bytes, Led] = field(default_factory=dict)
    mirror: dict[bytes, tuple[Value, Keys]] = field(default_factory=dict)
    # What the mirror holds under each of its keys.
    held: dict[bytes, Block | None] = field(default_factory=dict)
    # Keys of the mirror that it takes for others: for which, as what lies there tells.
    alike: dict[bytes, bytes] = field(default_factory=dict)
    # Which look again once a key of the mirror has gone, which it can't tell from theirs.
    waiting: dict[bytes, list[Value]] = field(default_factory=lambda: defaultdict(list))
    # Which key of the primary makes a key of the mirror.
    owners: dict[bytes, Led] = field(default_factory=dict)
    # Which lead, or led, to it; and which lead there now.
    ever: dict[bytes, list[Led]] = field(default_factory=lambda: defaultdict(list))
    now: dict[bytes, list[Led]] = field(default_factory=lambda: defaultdict(list))
    # Keys of the mirror that stay as they are, since what leads there can't be made.
    unmade: set[bytes] = field(default_factory=set)

    def add(self, each: Led) -> None:
        """Take a key of the primary."""
        self.led[encode(each.key)] = each
        for form in each.ever:
            self.ever[form].append(each)
        for form in each.now.forms:
            self.now[form].append(each)

    def sources(self, form: bytes) -> list[Value]:
        """The keys of the primary that lead, or led, to a key of the mirror."""
        return [each.key for each in self.ever[form]]


__all__ = ["Batch", "Keys", "Led", "Made"]
