"""Columns for tables that nobody described, told from all the blocks they are to hold.

Every block is looked at, never a sample: the rare field and the one that is null at first have
their column too (hard case C24). Each field gets the type that holds the kind most of its values
have; values of other kinds do not fit, which is for the plan to tell by path and key.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from decimal import Decimal

from migrator.errors import Refused
from migrator.model import value as v
from migrator.model.block import Block, join
from migrator.model.canonical import encode
from migrator.model.move import At, Tables
from migrator.model.value import Kind, Record, Value, kind_of
from migrator.stores.sql.options import Dialect
from migrator.stores.sql.schema import MYSQL_KEY_TEXT, TYPES, split_declared

MOST_FIELDS = 1_000
_NAME_BYTES = {"postgresql": 63, "mysql": 64, "sqlite": 255}
_NUMBERS = {Kind.INT32, Kind.INT64}
_KEY_NAMES = ("id", "_id")


@dataclass
class _Field:
    """What is known of one field from the values seen."""

    kinds: Counter[Kind] = field(default_factory=Counter)
    scales: Counter[int] = field(default_factory=Counter)
    longest: int = 0
    whole: int = 1

    def add(self, value: Value) -> None:
        value = value.id if type(value) is v.Ref else value
        if value is None:
            return
        self.kinds[kind_of(value)] += 1
        if isinstance(value, str | bytes):
            self.longest = max(self.longest, len(value))
        elif type(value) is Decimal and value.is_finite():
            _, digits, exponent = value.as_tuple()
            assert isinstance(exponent, int)
            self.scales[max(0, -exponent)] += 1
            self.whole = max(self.whole, len(digits) + exponent)

    def type(self, dialect: Dialect, *, key: bool) -> str:
        """The column that holds most of the values; text where none was seen."""
        types, kind = TYPES[dialect], self._kind(dialect)
        if dialect == "mysql" and key and kind in (Kind.TEXT, Kind.BYTES):
            word = "varchar" if kind is Kind.TEXT else "varbinary"
            return f"{word}({max(MYSQL_KEY_TEXT, self.longest)})"
        if dialect == "mysql" and kind is Kind.DECIMAL:
            scale = max(self.scales, key=lambda s: (self.scales[s], s), default=0)
            return f"decimal({min(65, max(self.whole + scale, 10 + scale))},{min(30, scale)})"
        if dialect == "mysql" and kind is Kind.UUID:
            return "uuid"
        return types.get(kind, types[Kind.TEXT])

    def _kind(self, dialect: Dialect) -> Kind:
        """The kind of most values, as a column has it."""
        if dialect == "sqlite" and self.kinds and self.kinds.keys() <= _NUMBERS:
            return min(self.kinds)  # one column of SQLite holds numbers of both sizes
        counts: Counter[Kind] = Counter()
        for kind, count in self.kinds.items():
            counts[Kind.RECORD if kind is Kind.LIST else kind] += count
        return max(sorted(counts), key=lambda kind: counts[kind], default=Kind.TEXT)


class _Profile:
    """What is known of one table and those below it."""

    def __init__(self, spec: Tables, dialect: Dialect, like: bool = False) -> None:
        self.spec = spec
        self.dialect = dialect
        # What the script describes stays as it is described.
        self.described = like or spec.like is not None or bool(spec.columns)
        self.fields: dict[str, _Field] = {}
        self.names: set[str] = set()
        # Columns of the block's key that no field repeats.
        self.apart: dict[str, _Field] = {}
        self.children = {
            name: _Profile(below, dialect, like or spec.like is not None)
            for name, below in spec.children.items()
        }

    def add(self, record: Value) -> None:
        held = {self.spec.value: record} if self.spec.value is not None else record
        if type(held) is not dict:
            return
        for name, value in held.items():
            below = self.children.get(name)
            if below is None:
                self._add(name, value)
                continue
            for item in value if type(value) is list else [value]:
                if item is not None:
                    below.add(item)

    def _add(self, name: str, value: Value) -> None:
        known = self.fields.get(name)
        if known is None:
            # A name that no column can have leaves the field without one.
            folded = name if self.dialect == "postgresql" else name.casefold()
            if folded in self.names or not self._may_name(name):
                return
            self.names.add(folded)
            known = self.fields[name] = _Field()
        known.add(value)

    def _may_name(self, name: str) -> bool:
        size = len(name.encode("utf-8", "surrogatepass"))
        plain = name.isprintable() and not name.endswith(" ") and v.has_utf8(name)
        return bool(name) and plain and size <= _NAME_BYTES[self.dialect] and self._room

    @property
    def _room(self) -> bool:
        return len(self.fields) < MOST_FIELDS

    def declared(self, key: tuple[str, ...], up: _Made | None) -> Tables:
        """The table with its columns, keys and order; ``up`` is what lies above it."""
        spec = self.spec
        if self.described:
            columns = dict(spec.columns)
            made = _Made(spec.table, spec.key or key, columns)
        else:
            spec, made = self._described(key, up)
        children = {name: below.declared((), made) for name, below in self.children.items()}
        return replace(spec, children=children)

    def _described(self, key: tuple[str, ...], up: _Made | None) -> tuple[Tables, _Made]:
        spec = self.spec
        columns: dict[str, str] = {}
        parent = spec.parent
        order = spec.order_by
        if up is not None:
            parent = parent or tuple(self.free(up.link(name)) for name in up.key)
            columns |= {name: up.type(ref) for name, ref in zip(parent, up.key, strict=False)}
            key, order = spec.key, self._order(key=spec.key)
            if not key:
                key = parent if spec.one else (*parent, *order)
            columns |= {n: "integer POSITION" for n in order if n not in self.fields}
        if spec.value is not None and not self.fields:
            self.fields[spec.value] = _Field()  # every list was empty
        for name, seen in self.fields.items():
            columns[name] = seen.type(self.dialect, key=name in key)
        for name, seen in self.apart.items():
            columns[name] = seen.type(self.dialect, key=True) + " BLOCK KEY"
        return (
            replace(spec, key=key, parent=parent, order_by=order, columns=columns),
            _Made(spec.table, key, columns),
        )

    def _order(self, key: tuple[str, ...]) -> tuple[str, ...]:
        """What orders the rows of one parent: a column for their place, where nothing else does."""
        spec = self.spec
        if spec.one or spec.order_by or key:
            return spec.order_by
        return (self.free("position"),)

    def free(self, name: str) -> str:
        """A column's name that no field has."""
        while name in self.fields or name in self.children:
            name += "_"
        return name


@dataclass(frozen=True)
class _Made:
    """A table above another: what its children's links need to know."""

    table: str
    key: tuple[str, ...]
    columns: dict[str, str]

    def link(self, name: str) -> str:
        """How a child calls its link to this key column."""
        table = self.table.rpartition(".")[2]
        return name if name.startswith(table) else f"{table}_{name}"

    def type(self, name: str) -> str:
        """The type of a key column, which the link has too."""
        return split_declared(self.columns.get(name, "integer"))[0]


class TablesInference:
    """Watches the blocks of a class and tells the tables for them."""

    def __init__(self, at: At, dialect: Dialect) -> None:
        assert at.tables is not None
        self.at = at
        self._spec = at.tables
        self._seen = _Profile(at.tables, dialect)
        self._parts: list[_Part] = []

    def add(self, block: Block) -> None:
        """Take a block into account. Raises CorruptBlock, or Refused for keys of many shapes."""
        record = join(block).value
        self._seen.add(record)
        parts = block.id if type(block.id) is list else [block.id]
        if not self._parts:
            self._parts = [_Part(set(record)) for _ in parts]
        elif len(parts) != len(self._parts):
            raise self._refuse("its blocks have keys of several shapes")
        for part, value in zip(self._parts, parts, strict=True):
            part.add(value, record)

    def result(self) -> At:
        """The location with its tables described. Raises Refused where there was no block."""
        described = self._seen.declared(self._key(), None)
        return At(self.at.store, described, self.at.representation, references=self.at.references)

    def _key(self) -> tuple[str, ...]:
        """The fields that repeat the block's key, or columns of its own where none does."""
        seen, named = self._seen, self._spec.key
        if not self._parts:
            raise self._refuse("there is no block to tell its columns from")
        if named and len(named) != len(self._parts):
            raise self._refuse(f"key={list(named)} has not the parts of the blocks' keys")
        taken: list[str] = []
        for place, part in enumerate(self._parts):
            fits = sorted(part.fields & seen.fields.keys() - set(taken))
            own = seen.free("id" if len(self._parts) == 1 else f"key{place + 1}")
            usual = [name for name in _KEY_NAMES if name in fits]
            name = named[place] if named else next(iter([*usual, *fits]), own)
            if name not in seen.fields:
                seen.apart[name] = part.values
            taken.append(name)
        return tuple(taken)

    def _refuse(self, why: str) -> Refused:
        return Refused(
            f"nothing says what table {self._spec.table!r} looks like: {why}",
            where=str(self.at),
            hint=f'write tables("{self._spec.table}", key="id", columns={{"id": "integer", ...}}), '
            'or like="STORE" to make it like a table there',
        )


class _Part:
    """A part of the block's key: its values, and the fields that repeat it in every block."""

    def __init__(self, fields: set[str]) -> None:
        self.fields = fields
        self.values = _Field()

    def add(self, value: Value, record: Record) -> None:
        self.values.add(value)
        form = encode(value)
        self.fields = {
            name for name in self.fields if name in record and _form(record[name]) == form
        }


def _form(value: Value) -> bytes:
    return encode(value.id if type(value) is v.Ref else value)


__all__ = ["TablesInference"]
