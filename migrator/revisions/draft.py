"""Drafts of what a script declares: from foreign keys, or from where a class now lies.

A draft runs as it stands, and leaves what only its reader can decide in comments.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from migrator.errors import Refused
from migrator.model.move import At
from migrator.model.path import child
from migrator.model.shape import ForeignKey, TableShape
from migrator.revisions.source import Group, Part, Piece, quoted, words, written

# Options of tables(...), which a field of the same name would be taken for.
_OPTIONS = frozenset(
    ["table", "key", "parent", "order_by", "value", "one", "nulls", "columns", "like", "children"]
)  # fmt: skip


def class_name(table: str) -> str:
    """The class that a table's rows are drafted as: ``order lines`` gives ``OrderLines``."""
    parts = re.findall(r"[^\W_]+", table)
    return "".join(part[0].upper() + part[1:] for part in parts) or "Rows"


@dataclass
class Draft:
    """A drafted move out of tables."""

    cls: str
    tables: Piece
    identifier: str | None = None
    references: Mapping[str, str] = field(default_factory=dict)


def draft_tables(root: str, shapes: Sequence[TableShape]) -> Draft:
    """Draft ``tables(...)`` of a root table with what points to it, to any depth.

    Each table is taken once, as near to the root as it can be. Raises Refused where there is no
    such table or it has no primary key.
    """
    known = {shape.name: shape for shape in shapes}
    if root not in known:
        raise Refused(
            f"there is no table {root!r}", hint=f"known: {', '.join(sorted(known)) or 'none'}"
        )
    if not known[root].key:
        raise Refused(
            f"table {root} has no primary key, which would identify its rows",
            hint="declare one in the database, or write the script by hand with tables(key=...)",
        )
    return _Drafter(known, root).draft()


@dataclass
class _Child:
    """A table below another, and the foreign key that puts it there."""

    shape: TableShape
    link: ForeignKey
    of: TableShape
    pointed_to: bool

    @property
    def own(self) -> tuple[str, ...]:
        """The columns that do not say which parent."""
        return tuple(c for c in self.shape.columns if c not in self.link.columns)

    @property
    def others(self) -> list[ForeignKey]:
        return [fk for fk in self.shape.foreign_keys if fk is not self.link]

    @property
    def linked(self) -> ForeignKey | None:
        """Where the row is but a link to one other row: where it leads."""
        if self.pointed_to or self.single or len(self.own) != 1:
            return None
        return next((fk for fk in self.others if fk.columns == self.own), None)

    @property
    def single(self) -> bool:
        """Whether a parent has at most one such row."""
        columns = set(self.link.columns)
        return any(k and set(k) <= columns for k in (self.shape.key, *self.shape.unique))


class _Drafter:
    def __init__(self, known: Mapping[str, TableShape], root: str) -> None:
        self.known = known
        self.root = root
        self.children: dict[str, list[_Child]] = {name: [] for name in known}
        self.left_out: dict[str, list[str]] = {name: [] for name in known}
        self.references: dict[str, str] = {}
        self.inside: set[str] = set()
        self._place()

    def _place(self) -> None:
        """Put each table below the nearest table that it points to, level by level."""
        pointed_to = {
            k.table for s in self.known.values() for k in s.foreign_keys if k.table != s.name
        }
        level = [self.root]
        while level:
            below: list[str] = []
            for parent in level:
                for shape in self.known.values():
                    to_parent = [fk for fk in shape.foreign_keys if fk.table == parent]
                    if not to_parent or shape.name in self.inside or shape.name == self.root:
                        continue
                    if len(to_parent) > 1:
                        columns = " and by ".join(", ".join(fk.columns) for fk in to_parent)
                        self.left_out[parent].append(
                            f"{shape.name} points here by {columns}: it is no part of one row"
                        )
                        continue
                    self.inside.add(shape.name)
                    below.append(shape.name)
                    self.children[parent].append(
                        _Child(shape, to_parent[0], self.known[parent], shape.name in pointed_to)
                    )
            level = below

    def draft(self) -> Draft:
        shape = self.known[self.root]
        for fk in shape.foreign_keys:
            self._refer(child("", fk.columns[0]), fk)
        tables = self._tables(shape, [], "")
        # A row keeps the column of its key as a field, unless the key has several.
        identifier = child("", shape.key[0]) if len(shape.key) == 1 else None
        return Draft(class_name(self.root), tables, identifier, self.references)

    def _tables(self, shape: TableShape, options: list[Part], path: str) -> Group:
        taken = set(shape.columns)
        named: list[Part] = []
        odd: list[Part] = []
        for below in self.children[shape.name]:
            name = _field(below, taken)
            taken.add(name)
            part = self._child(below, name, child(path, name))
            if name.isidentifier() and not keyword.iskeyword(name) and name not in _OPTIONS:
                named.append(Part(part.what, f"{name}=", part.notes))
            else:
                odd.append(Part(part.what, f"{quoted(name)}: ", part.notes))
        more = [Part(Group("{", odd, "}"), "children=")] if odd else []
        notes = [_comment(note) for note in self.left_out[shape.name]]
        return Group("tables(", [Part(quoted(shape.name)), *options, *more, *named], ")", notes)

    def _child(self, below: _Child, name: str, path: str) -> Part:
        shape, linked = below.shape, below.linked
        element = path if below.single else f"{path}[*]"
        options: list[Part] = []
        notes = [_comment(note) for note in self._notes(below)]
        if linked is not None:
            options.append(Part(quoted(linked.columns[0]), "value="))
            self._refer(element, linked)
        else:
            for fk in below.others:
                self._refer(child(element, fk.columns[0]), fk)
        if below.single:
            options.append(Part("True", "one="))
        else:
            order = [c for c in shape.key if c not in below.link.columns]
            if linked is not None:
                order = list(linked.columns)
            if order:
                options.append(Part(words(order), "order_by="))
        return Part(self._tables(shape, options, element), name, notes)

    def _notes(self, below: _Child) -> Iterator[str]:
        shape = below.shape
        if below.linked is None:
            for fk in below.others:
                if fk.table == shape.name or fk.table in self.inside:
                    yield f"{', '.join(fk.columns)} points to {fk.table}, inside some aggregate"
                elif self.known.get(fk.table, shape).foreign_keys:
                    yield f"{shape.name} also points to {fk.table}: cut it if it belongs there"
        empty = [c for c in below.link.columns if c in shape.nullable]
        if empty:
            yield f"rows of {shape.name} without {', '.join(empty)} belong to none and stay behind"
        if not shape.key and below.linked is None:
            yield f"{shape.name} has no primary key: name columns with key=... and order_by=..."

    def _refer(self, path: str, fk: ForeignKey) -> None:
        """Declare what points, by its whole key, to a row that is an aggregate of its own."""
        there = self.known.get(fk.table)
        if len(fk.columns) != 1 or there is None or fk.table in self.inside:
            return
        if (fk.refers_to or there.key) == there.key:
            self.references[path] = class_name(fk.table)


def _field(below: _Child, taken: set[str]) -> str:
    """The field that holds a child table: for a link table what it leads to, in the plural."""
    linked = below.linked
    name = (
        linked.table if linked is not None and linked.table != below.of.name else below.shape.name
    )
    if not below.single:
        name = _plural(name)
    candidates = [name, below.shape.name, f"{below.shape.name}_rows"]
    return next((c for c in candidates if c not in taken), f"{name}_{len(taken)}")


def _plural(name: str) -> str:
    lower = name.lower()
    if not name or lower.endswith("s") or not name[-1].isascii() or not name[-1].isalpha():
        return name
    if lower.endswith("y") and lower[-2:-1] not in "aeiou":
        return name[:-1] + "ies"
    return name + ("es" if lower.endswith(("x", "z", "ch", "sh")) else "s")


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


# ------------------------------------------------------------------------------ whole scripts


def moved_out(draft: Draft, store: str, target: Piece, stores: Sequence[str] = ()) -> str:
    """The ``move = ...`` of a class out of tables; ``stores`` are targets to choose from."""
    source = Group("At(", [Part(quoted(store)), Part(draft.tables)])
    collection = quoted(_plural(draft.cls[:1].lower() + draft.cls[1:]))
    rules = Part(Group("[", [Part(quoted(f"/{draft.cls}/*"))], "]"), "representation=")
    notes = [f"one of: {', '.join(map(_comment, stores))}"] if stores else []
    to = Group("At(", [Part(target, notes=notes), Part(collection), rules])
    parts = [Part(quoted(draft.cls)), Part(source, "source="), Part(to, "target=")]
    if draft.identifier is not None:
        parts.append(Part(quoted(draft.identifier), "identifier="))
    if draft.references:
        pairs = [Part(quoted(c), f"{quoted(path)}: ") for path, c in draft.references.items()]
        parts.append(Part(Group("{", pairs, "}"), "references="))
    return f"move = {_broken(parts)}\n"


def repartitioned(cls: str, at: At, collection: str) -> str:
    """The ``move = ...`` of a class to other rules in the same store."""
    now = at.representation or (f"/{cls}/*",)
    elements = f"{quoted(f'/{cls}/*/FIELD[*]')},  # each element of a list an entry of its own"
    last = {
        f"/{cls}/*": "what is left, as one entry (EAO)",
        f"/{cls}/*/*": "each field that is left an entry of its own (ETF)",
        f"/{cls}/*/**": "each atomic value that is left an entry of its own (EAV)",
    }
    others = [f"{quoted(rule)},  # {text}" for rule, text in last.items() if rule != now[-1]]
    rules = Group(
        "[",
        [Part(quoted(rule), notes=() if i else [elements]) for i, rule in enumerate(now)],
        "]",
        ["or, instead of the last:", *others],
    )
    parts = [Part(quoted(at.store)), Part(quoted(collection)), Part(rules, "representation=")]
    if at.layout is not None and at.tables is None and not at.layout.options:
        parts.append(Part(quoted(at.layout.name), "layout="))
    layout = f" in layout {at.layout.name}" if at.layout is not None else ""
    lies = f"# {cls} lies at {at}{layout} now, as {', '.join(now)}."
    move = _broken([Part(quoted(cls)), Part(Group("At(", parts), "target=")])
    return f"{_comment(lies)}\nmove = {move}\n"


def _broken(parts: Sequence[Part]) -> str:
    """A Move(...) with one part a line, also where it would fit on one: it will be edited."""
    body = "".join(f"    {p.name}{written(p.what, 4, len(p.name) + 1)},\n" for p in parts)
    return f"Move(\n{body})"
