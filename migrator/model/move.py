"""What a migration script declares: moves, locations and layouts.

``At`` says where blocks lie; ``Move`` takes a class from one location to another. Everything
here is data: the plan prints it, the fingerprint hashes it, the stores interpret their layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from migrator.errors import Refused
from migrator.model.rules import Representation, representation

if TYPE_CHECKING:
    from migrator.model.evolution import Evolution, MergeIn, Regrouping

Nulls: TypeAlias = Literal["null", "absent"]
Oversize: TypeAlias = Literal["refuse", "quarantine", "archive", "split"]
OVERSIZE: tuple[Oversize, ...] = ("refuse", "quarantine", "archive", "split")


@dataclass(frozen=True)
class Tables:
    """A table and the tables below it, as one aggregate (layout ``tables``)."""

    table: str
    children: Mapping[str, Tables] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    parent: tuple[str, ...] = ()
    order_by: tuple[str, ...] = ()
    value: str | None = None
    one: bool = False
    nulls: Nulls = "null"
    columns: Mapping[str, str] = field(default_factory=dict)
    like: str | None = None


def tables(
    table: str,
    *,
    key: str | Sequence[str] = (),
    parent: str | Sequence[str] = (),
    order_by: str | Sequence[str] = (),
    value: str | None = None,
    one: bool = False,
    nulls: Nulls = "null",
    columns: Mapping[str, str] | None = None,
    like: str | None = None,
    children: Mapping[str, Tables] | None = None,
    **more_children: Tables,
) -> Tables:
    """Describe a table and its child tables as one aggregate.

    ``key`` names the columns that identify a row (default: the primary key); ``parent`` the
    columns of a child that point to its parent (default: its foreign key); ``order_by`` the
    columns that order the children. ``value`` makes each child row that one column's value
    instead of a record (a link table becomes a list of identifiers); ``one`` gives a record
    instead of a list. ``nulls`` says what NULL stands for. For a target: ``columns`` declares
    types (SQL), ``like`` names a store whose tables give types, keys and indexes.
    ``children`` takes field names that are no Python names or are taken by an option.
    """

    def names(given: str | Sequence[str]) -> tuple[str, ...]:
        return (given,) if isinstance(given, str) else tuple(given)

    return Tables(
        table,
        {**(children or {}), **more_children},
        names(key),
        names(parent),
        names(order_by),
        value,
        one,
        nulls,
        dict(columns or {}),
        like,
    )


@dataclass(frozen=True)
class Layout:
    """The name of a store's layout with its options, which the store checks."""

    name: str
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, init=False)
class At:
    """A location: store, collection, representation and layout.

    Without a representation the class lies as EAO; without a layout the store's default
    holds. Columns hold references as bare identifiers: ``references`` says by path pattern
    which of them refer to which class, so that they are read as references again.
    """

    store: str
    collection: str
    representation: tuple[str, ...]
    layout: Layout | None
    tables: Tables | None
    references: Mapping[str, str] = field(default_factory=dict)

    def __init__(
        self,
        store: str,
        collection: str | Tables,
        representation: Sequence[str] = (),
        layout: str | Layout | None = None,
        references: Mapping[str, str] | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "references", dict(references or {}))
        put(self, "store", store)
        put(self, "representation", tuple(representation))
        if isinstance(collection, Tables):
            if layout not in (None, "tables"):
                raise Refused(f"{store}:{collection.table}: tables(...) has the layout tables")
            put(self, "collection", collection.table)
            put(self, "tables", collection)
            put(self, "layout", Layout("tables"))
        else:
            put(self, "collection", collection)
            put(self, "tables", None)
            put(self, "layout", Layout(layout) if isinstance(layout, str) else layout)

    def __str__(self) -> str:
        return f"{self.store}:{self.collection}"

    def rules(self, cls: str) -> Representation:
        """The representation here. Raises Refused for a bad list of rules."""
        return representation(cls, self.representation or (f"/{cls}/*",))


@dataclass(frozen=True)
class Move:
    """One class on its way from one location to another, perhaps with a change of shape.

    ``references`` declares by path pattern which values refer to which class: ``"Game"`` for a
    bare identifier, ``"Game:"`` for text that holds ``Game:id``. ``sensitive`` are paths whose
    values are never shown. ``oversize`` says what happens to a block that does not fit: refuse
    the run, set it aside in quarantine, put it into the ``archive`` as it lies in the source, or
    split it: then the target's layout is the one that lays large blocks out in parts.
    ``archive`` also takes what an evolution leaves out and is told to keep. ``tagged`` says
    whether values that the target has no type for may travel tagged: anywhere, nowhere, or at
    and below some paths. ``identifier`` is the path that repeats the block key inside the
    aggregate, where there is one. ``of`` is the class that the source holds, where that is
    another one: the games whose rounds become aggregates of their own.
    """

    cls: str
    target: At
    source: At | None = None
    evolve: Sequence[Evolution | Regrouping] = ()
    references: Mapping[str, str] = field(default_factory=dict)
    sensitive: Sequence[str] = ()
    oversize: Oversize = "refuse"
    identifier: str | None = None
    of: str | None = None
    archive: At | None = None
    tagged: Literal["accept", "refuse"] | Sequence[str] = "accept"

    @property
    def merges(self) -> MergeIn | None:
        """What is merged in from a second location, where that is so."""
        from migrator.model.evolution import MergeIn

        return next((step for step in self.evolve if isinstance(step, MergeIn)), None)

    @property
    def dissolves(self) -> str | None:
        """The class of which nothing is left by itself: merged in, or regrouped as a whole."""
        from migrator.model.evolution import Bucket, MergeIn, SplitOut

        for step in self.evolve:
            match step:
                case MergeIn(of=part):
                    return part
                case Bucket() | SplitOut(back=None) if self.source_cls != self.cls:
                    return self.source_cls
        return None

    def reads(self) -> dict[str, At]:
        """Where the move reads from, by class, as far as that is filled in."""
        merges = self.merges
        found = {} if self.source is None else {self.source_cls: self.source}
        return found if merges is None or merges.at is None else {**found, merges.of: merges.at}

    def writes(self) -> tuple[At, ...]:
        """Where the move writes to: its target and, where there is one, its archive."""
        return (self.target,) if self.archive is None else (self.target, self.archive)

    @property
    def source_cls(self) -> str:
        """The class that the source holds."""
        return self.of if self.of is not None else self.cls

    def __post_init__(self) -> None:
        target = self.target
        # The loader of scripts, which knows file and line, tells of a target that is none.
        if not isinstance(target, At):
            return
        if self.oversize == "split" and isinstance(target.layout, Layout):
            self._split(target, target.layout)
        if target.tables is None:
            return
        if target.references or self.evolve:
            return
        # Where the shape stays, what is a reference in the source is one in the target's columns.
        bare = {path: cls.removesuffix(":") for path, cls in self.references.items()}
        referring = At(target.store, target.tables, target.representation, references=bare)
        object.__setattr__(self, "target", referring)

    def _split(self, target: At, layout: Layout) -> None:
        """Name the layout that splits, so that later scripts find the class in it."""
        from migrator.model.layouts import splitting

        if target.tables is None and (found := splitting(layout)) is not None:
            there = At(
                target.store, target.collection, target.representation, found, target.references
            )
            object.__setattr__(self, "target", there)
