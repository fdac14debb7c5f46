"""The plan: what a move would do now, as data that is written, reviewed and carried out.

The JSON form is versioned by ``format``; ``docs/plan.schema.json`` is generated from here.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from migrator.model.move import Tables

FORMAT = 1

Severity = Literal["note", "warning", "accept", "error"]
Count = Annotated[int, msgspec.Meta(ge=0)]
Side = Literal["source", "target", "archive"]


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing the plan must tell.

    ``accept`` is carried out only after a person accepted it by its code; ``error`` never is.
    """

    code: str
    severity: Severity
    text: str
    cls: str = ""
    path: str = ""
    count: Count = 0
    keys: list[str] = []


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """One end of a move, as it is told to people."""

    store: str
    collection: str
    representation: list[str]
    name: str
    layout: str

    def __str__(self) -> str:
        return f"{self.store}:{self.collection}"


class EntryLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of a block in a difference: ``+`` added, ``~`` changed, ``-`` removed."""

    sign: Literal["+", "-", "~", "="]
    path: str
    bytes: Count = 0
    fields: list[str] = []
    detail: list[str] = []


class BlockDiff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One block as an example, or one of all in the file of differences."""

    key: str
    change: Literal["create", "change", "delete"]
    entries: list[EntryLine]
    more: Count = 0


class KindCount(msgspec.Struct, frozen=True, kw_only=True):
    """How many values of a kind stand at a path, and how the target holds them."""

    path: str
    kind: str
    how: str
    type: str
    count: Count


class Sizes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The largest of everything the target limits: bytes and levels."""

    block: Count = 0
    block_key: str = ""
    block_limit: Count | None = None
    key: Count = 0
    key_limit: Count | None = None
    nesting: Count = 0
    nesting_limit: Count | None = None
    name: Count = 0
    name_limit: Count | None = None


class Archived(msgspec.Struct, frozen=True, kw_only=True):
    """What goes into the archive of a move: whole blocks, and parts of ``parts`` others."""

    place: Place
    blocks: Count
    parts: Count
    bytes: Count


class Capacity(msgspec.Struct, frozen=True, kw_only=True):
    """What a move takes of one side, in units of capacity, where its server counts such.

    ``survey`` was read for this plan; ``write`` and ``read`` are for the copy, ``verify`` is read
    to verify once. The rates are what table and settings allow a second.
    """

    side: Side
    survey: Count
    write: Count
    read: Count
    verify: Count
    write_rate: float | None = None
    read_rate: float | None = None

    @property
    def seconds(self) -> float:
        """How long the rates make the copy take, at least."""
        pairs = ((self.write, self.write_rate), (self.read, self.read_rate))
        return max(units / rate if rate else 0.0 for units, rate in pairs)


class MovePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is planned for one move.

    ``tables`` is how the target's tables are made, where the script leaves that to the data.
    ``shuffled``: pages are copied from all ranges in turns, in an order by chance.
    """

    cls: str
    source: Place
    target: Place
    evolutions: list[str]
    create: Count
    change: Count
    delete: Count
    leave: Count
    entries: Count
    bytes: Count
    entries_added: Count
    entries_changed: Count
    entries_removed: Count
    exact: bool
    bound: str
    fresh: bool
    read: Count
    samples: list[BlockDiff]
    kinds: list[KindCount]
    sizes: Sizes
    ranges: Count
    page: Count
    requests_read: Count
    requests_write: Count
    seconds: float
    rate: float
    rollback: list[str]
    effective: bool
    oversize: str
    tables: Tables | None = None
    archive: Archived | None = None
    capacity: list[Capacity] = []
    shuffled: bool = False

    @property
    def writes(self) -> int:
        """Blocks that the target receives."""
        return self.create + self.change

    @property
    def archived(self) -> int:
        """Blocks that the archive receives, parts of others included."""
        return 0 if self.archive is None else self.archive.blocks + self.archive.parts


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The frozen answer to "what would this revision do now".

    Of its digests ``declared`` covers the script and where its stores lie, ``fingerprint`` the
    schema of the sources too, ``targets`` the schema of the targets. ``digest`` is of the plan
    itself: one that was edited is refused. ``differences`` is how many changed and deleted blocks
    are told, each by its entries, in the file beside the plan. ``live``: the applications go on
    writing while it is carried out, and ``feeds`` tell how they are followed.
    """

    format: int = FORMAT
    revision: str
    message: str
    env: str
    made: str
    declared: str
    fingerprint: str
    targets: str
    full: bool
    moves: list[MovePlan]
    findings: list[Finding]
    gates: list[str]
    digest: str = ""
    differences: Count = 0
    live: bool = False
    feeds: list[str] = []

    @property
    def blocks(self) -> int:
        return sum(m.create + m.change + m.delete + m.archived for m in self.moves)

    @property
    def errors(self) -> list[Finding]:
        return [f for f in self.findings if f.severity == "error"]

    @property
    def to_accept(self) -> list[Finding]:
        return [f for f in self.findings if f.severity == "accept"]
