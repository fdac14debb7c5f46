"""What the engine needs of the world: stores, their collections, observers and a clock.

A store module implements ``Store`` and ``Collection``; the engine asks ``Capabilities`` what a
store can do and never which store it is. Positions and ranges are JSON values that only the
store understands: they are kept in checkpoints and come back after a crash, in another process.

Errors: ``Transient`` where the same request may succeed later (``unknown`` where it may have
been carried out), ``DoesNotFit`` where one block can't be held, ``DamagedBlock`` where one that
was asked for by its key can't be read, ``Terminal`` for the rest.
A store does not retry: ``retry.py`` does, in one place. Where a call takes many requests, the
store sends each through ``retry.request``, so that one that fails does not cost the others.
"""

from __future__ import annotations

from collections.abc import Collection as Several
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol, TypeAlias, runtime_checkable

from migrator.model.block import Address, Block, Patch
from migrator.model.ending import Ending
from migrator.model.move import At, Layout
from migrator.model.rules import Entries
from migrator.model.shape import TableShape
from migrator.model.value import Kind, Value

Json: TypeAlias = object


class How(StrEnum):
    """How a store holds a kind of value."""

    NATIVE = "native"
    TAGGED = "tagged"
    REFUSED = "refused"


@dataclass(frozen=True)
class Held:
    """How one kind is held: the server's own type, or the carrier of a tagged value."""

    how: How
    type: str = ""


@dataclass(frozen=True)
class Limits:
    """Upper bounds, None where there is none: bytes, levels of nesting, blocks in a request.

    What keeps within them fits; a little more may fit too, and is then kept exactly.
    """

    block_bytes: int | None = None
    entry_bytes: int | None = None
    key_bytes: int | None = None
    name_bytes: int | None = None
    nesting: int | None = None
    batch_blocks: int | None = None
    batch_bytes: int | None = None


@dataclass(frozen=True)
class Cost:
    """What an operation of the gateway takes in a layout: requests, and what travels.

    ``requests``: at most, for a block whose entries go in one request. ``least``: what the
    cheapest case takes, where that is less. ``more``: requests for each table of the location
    beside its first. ``extra``: requests more where the location has what is named. ``pages``:
    requests more for each further ``page`` entries that travel. ``whole``: what is sent grows
    with the block, and not with what changes alone.
    """

    requests: int
    sends: str
    more: int = 0
    whole: bool = False
    least: int | None = None
    extra: Mapping[str, int] = field(default_factory=dict)
    pages: int = 0
    page: int = 25

    def at_most(self, tables: int, has: Several[str], entries: int) -> int:
        """The requests at most of a location of so many tables, for so many entries."""
        named = sum(more for name, more in self.extra.items() if name in has)
        further = max(0, -(-entries // self.page) - 1)
        return self.requests + self.more * (tables - 1) + named + self.pages * further

    def at_least(self, tables: int) -> int:
        """The requests of the cheapest case."""
        return self.requests + self.more * (tables - 1) if self.least is None else self.least

    def shown(self) -> str:
        """The number of requests, for a person."""
        # Of several tables the cheapest case may take more than the dearest one of a single table.
        varies = self.least is not None and self.least < self.requests
        text = f"{self.least} to {self.requests}" if varies else f"{self.requests}"
        text += f" + {self.more} for each further table" if self.more else ""
        text += "".join(f" + {more} with {name}" for name, more in self.extra.items())
        return text + (
            f" + {self.pages} for each further {self.page} entries" if self.pages else ""
        )


@dataclass(frozen=True)
class LayoutFacts:
    """What is true of one layout of a store.

    ``effective``: one block is one unit of distribution and of atomicity (NoAM).
    ``version``: where the version for conditional writes lies. ``by_key``: a block can be read
    by its key alone. ``costs``: get, get_entries, put, update, append, delete, and ``exchange``
    where blocks can be changed on condition; ``amend`` is a gateway's update or append of fields,
    where that is told apart.
    ``entries``: the entries lie apart, so that one can be written without the others.
    ``typed``: values lie in columns or keys of declared types, which decide how each is held.
    ``shared``: blocks of several classes may lie in one collection, told apart by their keys.
    ``kinds``, ``key_kinds``, ``limits`` and ``expiry`` are those of this layout, None where
    the store's own hold.
    """

    effective: bool
    unit: str
    version: str
    costs: Mapping[str, Cost]
    by_key: bool = True
    entries: bool = True
    shared: bool = False
    typed: bool = False
    kinds: Mapping[Kind, Held] | None = None
    key_kinds: frozenset[Kind] | None = None
    limits: Limits | None = None
    expiry: bool | None = None


@dataclass(frozen=True)
class Capabilities:
    """What a store can do, as data.

    ``in_process``: its work is computing in this process, which several threads only take turns
    at, and no waiting for a server. ``reads_through``: blocks cost it much less page by page than
    by their keys.
    """

    layouts: Mapping[str, LayoutFacts]
    default_layout: str
    kinds: Mapping[Kind, Held]
    key_kinds: frozenset[Kind]
    key_order: str
    limits: Limits
    lists_keys: bool = True
    feed: str | None = None
    expiry: bool = False
    transactions: bool = False
    in_process: bool = False
    reads_through: bool = False

    def at(self, layout: Layout | None) -> Capabilities:
        """What holds in one layout; None stands for the default one."""
        facts = self.layouts[layout.name if layout is not None else self.default_layout]
        return replace(
            self,
            kinds=self.kinds if facts.kinds is None else facts.kinds,
            key_kinds=self.key_kinds if facts.key_kinds is None else facts.key_kinds,
            limits=self.limits if facts.limits is None else facts.limits,
            expiry=self.expiry if facts.expiry is None else facts.expiry,
        )


@dataclass(frozen=True)
class ServerInfo:
    """What answered: product, version, and what it can't promise (R7)."""

    product: str
    version: str
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Statistics:
    """How large a collection is; ``exact`` says whether it was counted or estimated."""

    blocks: int
    bytes: int
    exact: bool


@dataclass(slots=True)
class Page:
    """Some blocks of a range. ``next`` is where the following page begins, None at the end;
    a page may be empty before the end. ``damaged`` are blocks that could not be read: key and
    reason."""

    blocks: list[Block]
    next: Json
    bytes: int = 0
    damaged: list[tuple[Value, str]] = field(default_factory=list)

    @property
    def met(self) -> int:
        """How many blocks it tells of, also those that could not be read."""
        return len(self.blocks) + len(self.damaged)


def one_page(pages: Iterable[Page], size: int) -> Page:
    """Of some pages one, with so many blocks at most."""
    found = Page([], None)
    for page in pages:
        found.blocks += page.blocks
        found.damaged += page.damaged
        found.bytes += page.bytes
    del found.blocks[size:]
    return found


@runtime_checkable
class Observer(Protocol):
    """The verifier's way to read a collection, by a decoder of its own (never the copier's)."""

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        """As ``Collection.page``."""

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        """As ``Collection.read``."""


@runtime_checkable
class Matching(Protocol):
    """What an observer may offer beside: to tell without decoding what lies there as expected."""

    def match(self, expected: Sequence[Block]) -> list[Block | None]:
        """As ``read`` of these blocks' keys; gives the expected block itself where the bytes that
        lie there are those which an encoder of its own, never the copier's, makes of it."""


@runtime_checkable
class Summing(Protocol):
    """What an observer may offer beside: blocks as bytes, which can be added up undecoded."""

    def form(self, expected: Block) -> bytes | None:
        """The bytes that must lie there for a block, which an encoder of its own, never the
        copier's, makes of it and a decoder reads back; None where only decoding can tell."""

    def forms(self, range_: Json, position: Json, limit: int) -> tuple[list[bytes], Json]:
        """As ``page``: the bytes that do lie there for each block, and the next position."""


class Collection(Observer, Protocol):
    """The blocks of one class at one location."""

    at: At
    cls: str

    def exists(self) -> bool:
        """Whether the collection is there."""

    def create(self) -> None:
        """Create what the collection needs; does nothing where it is there already."""

    def drop(self) -> None:
        """Remove the collection with all its blocks; does nothing where it is not there."""

    def schema(self) -> Json:
        """A description of the physical schema, for the fingerprint; None where there is none."""

    def findings(self) -> Iterable[tuple[str, str, str]]:
        """What a plan should tell of this location: severity, code and text."""

    def count(self) -> int:
        """The number of blocks, counted."""

    def statistics(self) -> Statistics:
        """The size of the collection, cheap and perhaps estimated."""

    def split(self, parts: int) -> list[Json]:
        """About ``parts`` ranges that cover all possible keys and do not overlap."""

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        """Up to ``limit`` blocks of a range after a position (None: from the start)."""

    def keys(self, range_: Json, position: Json, limit: int) -> tuple[list[Value], Json]:
        """As ``page``, the keys alone. Only where ``lists_keys``."""

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        """The blocks of these keys, in their order; None where there is none."""

    def read_entries(self, id: Value, paths: Sequence[str]) -> Entries | None:
        """Some entries of a block, those that exist; None where there is no such block, or it has
        ended."""

    def sample(self, size: int) -> Page:
        """About ``size`` blocks from all over the collection, as the page of a range."""

    def write(self, blocks: Sequence[Block]) -> int:
        """Put whole blocks, durably and idempotently; entries they no longer have go.

        Each block becomes visible whole. Returns the bytes sent. Raises DoesNotFit, naming
        the block, before anything of the batch is written; so does a block without entries.
        """

    def patch(self, patches: Sequence[Patch]) -> None:
        """Set and remove single entries, each patch atomically. Raises Terminal for no block."""

    def delete(self, addresses: Sequence[Address]) -> None:
        """Remove blocks; those that are not there are no error."""

    def settle(self) -> None:
        """What remains after the last block: move sequences on, refresh statistics."""

    def observer(self) -> Observer:
        """The independent reader of the same location."""

    def size(self, block: Block) -> int:
        """The bytes this block takes by the rule of the store's own limits.

        Raises DoesNotFit for all that ``write`` would refuse by the block alone, but for the
        limit of bytes itself: a plan asks this for every block, so that no copy is surprised.
        """

    def needs_tag(self, value: Value) -> Held | None:
        """How a value that looks native is held here after all (a text with NUL, a number out
        of range); None where its kind's own row of the capabilities holds."""

    def same_key(self, id: Value) -> Value:
        """The key by the store's own comparison: two keys that give one value collide."""


class Inference(Protocol):
    """Watches all the blocks that a collection is to hold, to tell how it must be made."""

    def add(self, block: Block) -> None:
        """Take a block into account. Raises CorruptBlock, or Refused for what none can be made."""

    def result(self) -> At:
        """The location with its tables described. Raises Refused where that can't be told."""


@runtime_checkable
class Infers(Protocol):
    """A collection whose physical schema can be told from its blocks; beside ``Collection``."""

    def inference(self) -> Inference | None:
        """What is to see the blocks; None where the collection is there, or is described."""


@runtime_checkable
class ByPath(Protocol):
    """A collection where it is a field's column that says how it is held; beside ``Collection``."""

    def needs_tag_at(self, path: str, value: Value) -> Held | None:
        """As ``needs_tag``, of a list, set or record for which that says nothing, by its path."""


@runtime_checkable
class AsTarget(Protocol):
    """A collection with something to tell where it is to be written to; beside ``Collection``."""

    def target_findings(self, blocks: int, size: int) -> Iterable[tuple[str, str, str]]:
        """As ``findings``, for a plan that writes so many blocks and bytes here."""


@runtime_checkable
class FieldsEnd(Protocol):
    """A collection that carries deadlines of single fields; beside ``Collection``.

    Its blocks hold them in a field, as a record of timestamps; what has ended is absent in both.
    """

    @property
    def ending(self) -> Ending:
        """The fields that hold such deadlines; none where the layout leaves them out."""


@runtime_checkable
class Shaped(Protocol):
    """A collection whose blocks are made of what the store's catalogue says, which it reads once;
    beside ``Collection``."""

    def shape_now(self) -> Json:
        """What of the catalogue its blocks depend on, by table, read anew; None where not all is
        there. ``identity`` in it tells a table from another that took its name, where a feed of
        the one does not show what is written to the other."""

    def forget(self) -> None:
        """Read the catalogue again when it is next needed."""


@runtime_checkable
class Marked(Protocol):
    """A catalogue of which a little tells that it is as it was; beside ``Shaped``."""

    def shape_mark(self) -> Json:
        """As long as it is the same, so is ``shape_now``; None where nobody can tell. Quick, for
        it is asked for under a fence."""


@runtime_checkable
class Stamped(Protocol):
    """A collection whose server knows of single fields when they were written, and takes that of
    a copy as well; beside ``Collection``."""

    @property
    def write_times(self) -> str | None:
        """The field that holds these; None where the layout leaves them behind."""


@dataclass(frozen=True)
class Units:
    """Units of capacity: to write a block, to look before that, to read it by its key."""

    write: int = 0
    look: int = 0
    read: int = 0


@dataclass(frozen=True)
class Rates:
    """Units of capacity a second, None where nothing bounds them."""

    read: float | None = None
    write: float | None = None


@runtime_checkable
class Metered(Protocol):
    """A collection whose server counts units of capacity; beside ``Collection``."""

    def measure(self, block: Block) -> tuple[int, Units]:
        """As ``size``, and what it takes to put the block where none lies, indexes included."""

    def units(self, new: Block | None, old: Block | None) -> Units:
        """What it takes to make a block another one; None for no block."""

    def scan_units(self) -> int:
        """What it takes to read the whole collection as it lies now."""

    def consumed(self) -> int:
        """The units that this process has read at the store so far."""

    def rates(self) -> Rates:
        """What the server, or the store's settings, allow."""


@runtime_checkable
class Crowded(Protocol):
    """A collection where many blocks may share a part that takes only so much a second; beside
    ``Collection``."""

    def crowded(self, blocks: int) -> bool:
        """Whether, of so many as were measured, so many share one that a copy should not go
        through it from end to end."""


@runtime_checkable
class Roomier(Protocol):
    """A collection whose store has a layout for larger blocks; beside ``Collection``."""

    def roomier(self) -> Layout:
        """That layout, with what this one declares; its entries lie apart."""


class Store(Protocol):
    """An open store."""

    name: str
    capabilities: Capabilities

    def ping(self) -> ServerInfo:
        """Ask the server who it is. Raises Terminal or Transient with what to do."""

    def collection(self, cls: str, at: At) -> Collection:
        """A handle on a location. Raises Refused for a layout or option it does not know."""

    def close(self) -> None:
        """Give back all connections."""


@runtime_checkable
class HasTables(Protocol):
    """A store whose tables a script can be drafted from; beside ``Store``."""

    def table_shapes(self) -> Sequence[TableShape]:
        """All tables of the database, with their keys."""


@dataclass(frozen=True)
class StoreSettings:
    """What settings say of a store. ``options`` are checked by the store's module.

    ``url`` holds no password, ``root`` is the folder that relative paths start from.
    ``secret`` is a function: the password is fetched anew for every connection and never kept.
    ``sibling`` opens another store of the same environment, for schemas taken from there.
    ``application``: its writes are an application's, which a fence stops, and not Migrator's own.
    """

    name: str
    url: str
    # Options may hold secrets (the password of a client key), hence no repr.
    options: Mapping[str, object] = field(default_factory=dict, repr=False)
    secret: Secret | None = None
    sibling: Sibling | None = None
    root: str = "."
    application: bool = False


class Secret(Protocol):
    def __call__(self) -> str: ...


class Sibling(Protocol):
    def __call__(self, name: str) -> Store: ...


class StoreFactory(Protocol):
    """The entry point of a store module: group ``migrator.stores``, named by URL scheme."""

    def __call__(self, settings: StoreSettings) -> Store: ...


class Clock(Protocol):
    """Time, as the engine sees it (R14: a clock that runs on while the machine sleeps)."""

    def now(self) -> float:
        """Seconds since some start, never going back."""

    def wall(self) -> float:
        """Seconds since 1970; for people and for expiry only."""

    def sleep(self, seconds: float) -> None:
        """Wait."""
