"""From aggregates to rows, checked: whatever would read back otherwise is refused by path.

Nothing is sent here. A field without a column, a null where the layout means absence, a list
in another order than its rows would have: each raises DoesNotFit with the block and the path.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NoReturn, TypeAlias
from uuid import UUID
from weakref import WeakKeyDictionary

from migrator.errors import DoesNotFit
from migrator.model import value as v
from migrator.model.block import Block
from migrator.model.canonical import encode, equal
from migrator.model.path import child as child_path
from migrator.model.rules import CorruptBlock, assemble
from migrator.model.value import Record, Value, show
from migrator.stores.sql.columns import Codec
from migrator.stores.sql.documents import JSON_NULL
from migrator.stores.sql.keys import id_of, key_of
from migrator.stores.sql.rows import weight
from migrator.stores.sql.shape import Node
from migrator.stores.sql.unfit import Unfit

Form: TypeAlias = tuple[Any, ...]


@dataclass(slots=True)
class Written:
    """A row to be: its values and what the driver is sent for them, by column."""

    block: Block
    path: str
    values: list[Value]
    raw: list[Any]
    key: Form


@dataclass
class Unfolded:
    """The rows of some blocks by table, and which blocks must be read back to be sure: ``folding``
    those whose keys others may equal, unless the root's row is held, ``doubtful`` whose order only
    the server knows."""

    rows: dict[Node, list[Written]] = field(default_factory=dict)
    doubtful: dict[bytes, Block] = field(default_factory=dict)
    folding: dict[bytes, Block] = field(default_factory=dict)
    bytes: int = 0


class Later:
    """Rows that are unfolded when they are first asked for. Raises DoesNotFit then."""

    def __init__(self, make: Callable[[], Unfolded]) -> None:
        self._make = make
        self._made: Unfolded | None = None

    def __call__(self) -> Unfolded:
        if self._made is None:
            self._made = self._make()
        return self._made


def canonical(values: Sequence[Value]) -> bytes:
    """The canonical form of a row's values."""
    return b"".join(b"J" if value is JSON_NULL else encode(value) for value in values)


_PLAIN = frozenset((str, int, v.Int64, bytes, UUID, dt.date, dt.datetime))


def form(values: Sequence[Value]) -> Form:
    """A key's values in a form that is equal where the columns' own values are."""
    if _PLAIN.issuperset(map(type, values)):
        return tuple(values)
    return tuple([value if type(value) in _PLAIN else canonical((value,)) for value in values])


@dataclass(frozen=True, slots=True)
class _Column:
    """What is asked of a column for every row. ``link``: its place in the parent's key;
    ``apart``: its place in the block's key, where it is no field."""

    name: str
    encode: Callable[[Value], Any]
    link: int | None
    apart: int | None
    position: bool
    json: bool
    generated: bool
    needed: bool


def _columns(node: Node) -> list[_Column]:
    return [
        _Column(
            codec.name,
            codec.encode,
            node.parent.index(codec.name) if codec.name in node.parent else None,
            node.key.index(codec.name) if codec.name in node.apart else None,
            codec.name == node.position,
            codec.json,
            codec.column.generated is not None,
            not codec.column.nullable and codec.column.generated is None,
        )
        for codec in node.codecs
    ]


@dataclass(frozen=True, slots=True)
class _About:
    """What is asked of a table for every block: its columns, and the fields it knows.

    ``exact`` are the fields of a record that ``plain`` columns take as it is: the column's place
    in the parent's key, or none, its name, and what encodes it. None where no record can be.
    """

    columns: list[_Column]
    known: set[str]
    exact: frozenset[str] | None
    plain: list[tuple[int | None, str, Callable[[Value], Any]]]


_ABOUT: WeakKeyDictionary[Node, _About] = WeakKeyDictionary()


def _about(node: Node) -> _About:
    """Told once for a node, as a gateway unfolds one block at a time."""
    about = _ABOUT.get(node)
    if about is None:
        columns = _columns(node)
        fields = {c.name for c in columns if not c.position and c.apart is None}
        below = {child.name for child in node.children}
        odd = any(c.position or c.apart is not None or c.json or c.generated for c in columns)
        own = {c.name for c in columns if c.link is None}
        plain = [(c.link, c.name, c.encode) for c in columns]
        about = _About(columns, fields | below, None if odd else frozenset(own | below), plain)
        _ABOUT[node] = about
    return about


def unfold(root: Node, blocks: Sequence[Block], where: str) -> Unfolded:
    """The rows of whole blocks. Raises DoesNotFit."""
    return _Unfolder(root, where).run(blocks)


def row_below(root: Node, node: Node, id: Value, item: Value, where: str) -> Written:
    """The row of an item of a list of the root, whose key links it. Raises DoesNotFit."""
    unfolder = _Unfolder(root, where)
    unfolder.block = Block(id, {})
    key = key_of(id, len(root.key))
    assert key is not None
    refs = tuple([key[root.key.index(ref)] for ref in node.refs])
    return unfolder.item(node, item, node.name, refs, 0)


def comes_behind(node: Node, last: Value, item: Value) -> bool:
    """Whether the row of an element is sure to come behind that of another, by what they hold."""
    names = tuple(name for name in node.order if name not in node.parent)
    keys = []
    for each in (last, item):
        if type(each) is not dict or not each.keys() >= set(names):
            return False
        keys.append(tuple([each[name] for name in names]))
    return bool(names) and _is_sorted(node.codecs_of(names), keys)


class _Unfolder:
    def __init__(self, root: Node, where: str) -> None:
        self.root = root
        self.where = where
        self.out = Unfolded({node: [] for node in root.walk()})
        self.seen: dict[tuple[Node, Form], tuple[Block, str]] = {}
        self.about = {node: _about(node) for node in root.walk()}
        self.block = Block(None, {})

    def refuse(self, why: str, path: str, hint: str = "") -> NoReturn:
        raise DoesNotFit(why, key=self.block.id, path=path, where=self.where, hint=hint)

    def whole(self, block: Block) -> Record:
        try:
            return assemble(block.entries)
        except CorruptBlock as error:
            self.refuse(str(error), "")

    def run(self, blocks: Sequence[Block]) -> Unfolded:
        folds = any(codec.column.folds for codec in self.root.codecs_of(self.root.key))
        for block in blocks:
            self.block = block
            if block.expires is not None:
                self.refuse("tables hold no expiry", "", "drop the expiry with an evolution")
            row = self.row(self.root, self.whole(block), "", (), 0)
            key = id_of(tuple(row.values[i] for i in self.root.places(self.root.key)))
            if not equal(key, block.id):
                self.refuse(
                    f"the block's key {show(block.id)} is not the {list(self.root.key)} of its "
                    f"record, {show(key)}",
                    child_path("", self.root.key[0]),
                )
            if folds:
                self.out.folding[encode(block.id)] = block
        self.out.bytes = sum(weight([row.raw for row in rows]) for rows in self.out.rows.values())
        return self.out

    def row(
        self, node: Node, record: Value, path: str, parent: tuple[Value, ...], index: int
    ) -> Written:
        if type(record) is not dict:
            self.refuse(f"a row of {node.info.name} is made of a record", path)
        about = self.about[node]
        made = self._plainly(about, record, parent) if record.keys() == about.exact else None
        values, raw = made or self._checked(node, record, path, parent, index)
        written = Written(self.block, path, values, raw, self._row_key(node, values, path))
        self.out.rows[node].append(written)
        for below in node.children:
            refs = tuple([values[i] for i in node.places(below.refs)])
            self._children(below, record, child_path(path, below.name), refs)
        return written

    def _plainly(
        self, about: _About, record: Record, parent: tuple[Value, ...]
    ) -> tuple[list[Value], list[Any]] | None:
        """As ``_checked``, for a record that has each field of the table, and nothing to be looked
        at closely; None for others, of which that finds out what is the matter."""
        values: list[Value] = []
        raw: list[Any] = []
        try:
            for link, name, encode_ in about.plain:
                value = record[name] if link is None else parent[link]
                if value is None or type(value) is v.Ref:
                    return None
                raw.append(encode_(value))
                values.append(value)
        except Unfit:
            return None
        return values, raw

    def _checked(
        self, node: Node, record: Record, path: str, parent: tuple[Value, ...], index: int
    ) -> tuple[list[Value], list[Any]]:
        """The values of a row, and what the driver is sent for them."""
        self._check_fields(node, record, path)
        values: list[Value] = []
        raw: list[Any] = []
        for column in self.about[node].columns:
            name = column.name
            if column.link is not None:
                value = self._linked(column, record, parent[column.link], path)
            elif column.position:
                value = index
            elif column.apart is not None:
                value = self._of_key(node, column.apart)
            elif name in record:
                value = record[name]
            else:
                value = self._absent(node, column, path)
            if type(value) is v.Ref:
                value = value.id
            if value is None and name in record:
                value = self._null(node, column, path)
            try:
                if value is None:
                    self._check_null(column, path)
                    raw.append(None)
                else:
                    raw.append(column.encode(value))
            except Unfit as error:
                self.unfit(error, child_path(path, name))
            values.append(value)
        return values, raw

    def _of_key(self, node: Node, place: int) -> Value:
        key = key_of(self.block.id, len(node.key))
        if key is None:
            self.refuse(f"the table's key {list(node.key)} has other parts than the block's", "")
        return key[place]

    def unfit(self, error: Unfit, at: str) -> NoReturn:
        below = error.path if error.path.startswith("[") or not error.path else "." + error.path
        self.refuse(error.why, at + below)

    def _check_fields(self, node: Node, record: dict[str, Value], path: str) -> None:
        for name in record:
            if name not in self.about[node].known:
                self.refuse(
                    f"table {node.info.name} has no column for it",
                    child_path(path, name),
                    "add the column, declare a child table, or drop the field with an evolution",
                )

    def _linked(self, column: _Column, record: dict[str, Value], link: Value, path: str) -> Value:
        """The parent's key, or what the record holds instead of it."""
        if column.name not in record:
            return link
        own = record[column.name]
        if encode(own) == encode(link):
            self.refuse(
                "it repeats the parent's key, which the table's link tells",
                child_path(path, column.name),
            )
        return own

    def _absent(self, node: Node, column: _Column, path: str) -> Value:
        if not (node.spec.nulls == "absent" or column.json or column.generated):
            self.refuse(
                "it is absent, and the table would give it back as null",
                child_path(path, column.name),
                'say nulls="absent" in tables(...), or add a default with an evolution',
            )
        return None

    def _null(self, node: Node, column: _Column, path: str) -> Value:
        if column.json:
            return JSON_NULL
        if node.spec.nulls == "absent":
            self.refuse(
                'with nulls="absent" it would come back as absent, and is null',
                child_path(path, column.name),
            )
        return None

    def _check_null(self, column: _Column, path: str) -> None:
        if column.needed:
            self.refuse(f"column {column.name} takes no NULL", child_path(path, column.name))

    def _row_key(self, node: Node, values: list[Value], path: str) -> Form:
        if not node.key:
            return ()
        parts = [values[i] for i in node.places(node.key)]
        if None in parts or (JSON_NULL in parts and node.up is None):
            self.refuse(f"its key {list(node.key)} is null in part", path)
        key = form(parts)
        if (node, key) in self.seen:
            block, there = self.seen[node, key]
            self.refuse(f"it has the key of {show(block.id)} {there}: {show(parts)}", path)
        self.seen[node, key] = (self.block, path)
        return key

    def _children(
        self, node: Node, record: dict[str, Value], path: str, refs: tuple[Value, ...]
    ) -> None:
        spec = node.spec
        if node.name not in record:
            if spec.one and node.up is not None and node.up.spec.nulls == "absent":
                return
            self.refuse(f"it is absent, and table {node.info.name} would give an empty list", path)
        held = record[node.name]
        if spec.one:
            if held is not None:
                self.item(node, held, path, refs, 0)
            return
        if type(held) is not list:
            self.refuse(f"the rows of {node.info.name} are made of a list", path)
        if None in refs and held:
            self.refuse("its parent has no key to point to", path)
        rows = [self.item(node, item, f"{path}[{i}]", refs, i) for i, item in enumerate(held)]
        if len(rows) > 1:
            self._check_order(node, rows, path)

    def item(
        self, node: Node, item: Value, path: str, refs: tuple[Value, ...], index: int
    ) -> Written:
        record = {node.spec.value: item} if node.spec.value is not None else item
        return self.row(node, record, path, refs, index)

    def _check_order(self, node: Node, rows: list[Written], path: str) -> None:
        """The rows come back by their order columns: the list must stand so already."""
        names = tuple(name for name in node.order if name not in node.parent)
        places = node.places(names)
        keys = [tuple(row.values[i] for i in places) for row in rows]
        codecs = node.codecs_of(names)
        if names and not all(c.ordered for c in codecs) and _is_sorted(codecs, keys):
            return
        if not names or not all(c.ordered for c in codecs) or any(None in key for key in keys):
            self.out.doubtful[encode(self.block.id)] = self.block
        elif any(a > b for a, b in pairwise(keys)):
            self.refuse(
                f"the list is not in the order of {list(names)}, in which its rows come back",
                path,
                'keep the order in a column of its own: tables(..., order_by="position", '
                'columns={"position": "INTEGER POSITION"})',
            )


def _is_sorted(codecs: Sequence[Codec], keys: list[tuple[Value, ...]]) -> bool:
    """Whether rows are sure to come back in this order, by the kinds of what orders them."""
    for codec, values in zip(codecs, zip(*keys, strict=True), strict=True):
        kinds = set(map(type, values))
        if len(kinds) > 1 or not (kinds <= codec.sorts or (codec.ordered and None not in values)):
            return False
    return all(a < b for a, b in pairwise(keys))
