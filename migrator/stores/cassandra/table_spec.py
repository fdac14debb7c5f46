"""What a script declares of the layout ``table``, read and checked before a server is asked.

Built by ``migrator.cassandra_table``; see there for what each option means to a person.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from migrator.errors import Refused
from migrator.model.move import At
from migrator.stores.cassandra.columns_nested import (
    JSON,
    Type,
    Types,
    UnknownType,
    names_of,
    parse_type,
)
from migrator.stores.cassandra.derived import Derived, derived

SIDE = "_migrator"
LOCATOR = "_locator"
_NAME = re.compile(r"[A-Za-z0-9_]{1,48}")
_INDEXES = ("sai", "2i")
_DECLARING = frozenset(("key", "clustering", "id", "columns", "static", "derived", "types"))
_OPTIONS = _DECLARING | {"nulls", "indexes", "projections", "rest", "deadlines", "write_times"}
_PROJECTED = frozenset(("name", "key", "clustering", "columns", "derived"))


@dataclass(frozen=True)
class Key:
    """A primary key: partition columns, clustering columns, and which of those descend."""

    partition: tuple[str, ...]
    clustering: tuple[str, ...] = ()
    descending: frozenset[str] = frozenset()

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.partition, *self.clustering)


@dataclass(frozen=True)
class Projection:
    """A table that repeats some columns of the full one under a key of its own.

    ``columns`` is None for all of them.
    """

    name: str
    key: Key
    columns: tuple[str, ...] | None
    derived: Mapping[str, Derived]


@dataclass(frozen=True)
class Spec:
    """The declaration of a table. ``key`` is None where only the catalogue knows it."""

    table: str
    key: Key | None = None
    id: tuple[str, ...] = ()
    columns: Mapping[str, Type] = field(default_factory=dict)
    static: tuple[str, ...] = ()
    derived: Mapping[str, Derived] = field(default_factory=dict)
    types: Types = field(default_factory=dict)
    nulls: bool = False
    indexes: Mapping[str, str] = field(default_factory=dict)
    projections: tuple[Projection, ...] = ()
    rest: str | None = None
    deadlines: str | None = None
    write_times: str | None = None

    @property
    def cellwise(self) -> dict[str, str]:
        """The options that name a field for what is known of single cells, with that field."""
        given = {"deadlines": self.deadlines, "write_times": self.write_times}
        return {option: name for option, name in given.items() if name is not None}

    @property
    def locator(self) -> str:
        """The name of the table that says where a block lies."""
        return self.table + LOCATOR

    @property
    def derivations(self) -> dict[str, Derived]:
        """What is computed anywhere, in the full table or a projection."""
        found = dict(self.derived)
        for projection in self.projections:
            found.update(projection.derived)
        return found


def spec_of(at: At) -> Spec:
    """The declaration of a location. Raises Refused for what it can't mean."""
    options = dict(at.layout.options) if at.layout is not None else {}
    unknown = sorted(options.keys() - _OPTIONS)
    if unknown:
        raise Refused(
            f"{at}: layout table has no option {unknown[0]!r}",
            hint=f"options: {', '.join(sorted(_OPTIONS))}",
        )
    check_name(at, at.collection, LOCATOR)
    nulls = options.get("nulls", "absent")
    if nulls not in ("absent", "null"):
        raise Refused(f"{at}: nulls is {nulls!r}", hint='it is "absent" or "null"')
    types = _types(at, options.get("types"))
    found = Spec(
        at.collection,
        _key(at, options.get("key"), options.get("clustering")),
        _texts(at, "id", options.get("id")),
        _columns(at, options.get("columns"), types),
        _texts(at, "static", options.get("static")),
        _derived(at, options.get("derived")),
        types,
        nulls == "null",
        _indexes(at, options.get("indexes")),
        tuple(_projection(at, each) for each in _list(at, options.get("projections"))),
        _name(at, "rest", options),
        _name(at, "deadlines", options),
        _name(at, "write_times", options),
    )
    if found.rest is not None:
        found = _with_rest(at, found, found.rest)
    _check(at, found)
    return found


def check_name(at: At, name: str, suffix: str = "") -> None:
    """Refuse the name of a table that Cassandra does not take."""
    if not _NAME.fullmatch(name) or not _NAME.fullmatch(name + suffix):
        raise Refused(
            f"{at}: {name!r} can't be the name of a table in Cassandra",
            hint=f"letters, digits and underscores, at most {48 - len(suffix)} of them",
        )


def _refuse(at: At, what: str, hint: str = "") -> Refused:
    return Refused(f"{at}: {what}", hint=hint)


def _texts(at: At, option: str, given: object) -> tuple[str, ...]:
    names = [given] if isinstance(given, str) else given
    if names is None:
        return ()
    if not isinstance(names, Sequence) or not all(isinstance(n, str) and n for n in names):
        raise _refuse(at, f"{option} must be a name or a list of names, not {given!r}")
    if len(set(names)) != len(names):
        raise _refuse(at, f"{option} names a column twice: {', '.join(names)}")
    return tuple(names)


def _name(at: At, option: str, options: Mapping[str, object]) -> str | None:
    given = options.get(option)
    return None if given is None else _texts(at, option, given)[0]


def _list(at: At, given: object) -> Sequence[Mapping[str, object]]:
    if given is None:
        return ()
    if not isinstance(given, Sequence) or not all(isinstance(each, Mapping) for each in given):
        raise _refuse(at, "projections must be a list of projection(...)")
    return given


def _mapping(at: At, option: str, given: object) -> Mapping[str, str]:
    if given is None:
        return {}
    if not isinstance(given, Mapping) or not all(
        isinstance(name, str) and name and isinstance(text, str) for name, text in given.items()
    ):
        raise _refuse(at, f"{option} must map names to texts, not {given!r}")
    return given


def _key(at: At, partition: object, clustering: object) -> Key | None:
    if partition is None:
        if clustering is not None:
            raise _refuse(at, "clustering= needs key=, the columns of the partition key")
        return None
    columns, descending = [], set()
    for text in _texts(at, "clustering", clustering):
        name, _, order = text.rpartition(" ")
        if name and order.lower() in ("asc", "desc"):
            columns.append(name)
            if order.lower() == "desc":
                descending.add(name)
        else:
            columns.append(text)
    key = Key(_texts(at, "key", partition), tuple(columns), frozenset(descending))
    if not key.partition or len(set(key.columns)) != len(key.columns):
        raise _refuse(at, f"the key {list(key.columns)} names no column, or one twice")
    return key


def _types(at: At, given: object) -> Types:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise _refuse(at, "types must map the name of each type to its fields")
    found: Types = {name: dict(_mapping(at, f"type {name}", of)) for name, of in given.items()}
    for name, fields in found.items():
        check_name(at, name)
        for text in fields.values():
            _parsed(at, name, text, found)
    return found


def _parsed(at: At, name: str, text: str, types: Types) -> Type:
    try:
        type_ = parse_type(text)
        names_of(type_, types)
    except UnknownType as error:
        raise _refuse(at, f"column {name}: {error}") from None
    except RecursionError:
        raise _refuse(at, f"column {name}: the type {text} holds itself") from None
    return type_


def _columns(at: At, given: object, types: Types) -> dict[str, Type]:
    return {
        name: _parsed(at, name, text, types)
        for name, text in _mapping(at, "columns", given).items()
    }


def _derived(at: At, given: object) -> dict[str, Derived]:
    found = {}
    for name, text in _mapping(at, "derived", given).items():
        try:
            found[name] = derived(text)
        except ValueError as error:
            raise _refuse(at, f"derived column {name}: {error}") from None
    return found


def _indexes(at: At, given: object) -> dict[str, str]:
    if isinstance(given, str | Sequence):
        given = dict.fromkeys(_texts(at, "indexes", given), "sai")
    found = {name: kind.lower() for name, kind in _mapping(at, "indexes", given).items()}
    for name, kind in found.items():
        if kind not in _INDEXES:
            raise _refuse(at, f"index on {name}: {kind!r} is no kind of index", "sai or 2i")
    return found


def _projection(at: At, given: Mapping[str, object]) -> Projection:
    unknown = sorted(given.keys() - _PROJECTED)
    if unknown or not isinstance(given.get("name"), str):
        raise _refuse(
            at, f"a projection has no {unknown[0]!r}" if unknown else "a projection needs a name"
        )
    name = str(given["name"])
    check_name(at, name)
    key = _key(at, given.get("key"), given.get("clustering"))
    if key is None:
        raise _refuse(at, f"projection {name} needs key=")
    columns = given.get("columns")
    return Projection(
        name,
        key,
        None if columns is None else _texts(at, f"columns of {name}", columns),
        _derived(at, given.get("derived")),
    )


def _with_rest(at: At, spec: Spec, rest: str) -> Spec:
    if rest in spec.columns:
        raise _refuse(at, f"rest={rest!r} is a declared column too")
    return replace(spec, columns={**spec.columns, rest: Type(JSON)})


def _check(at: At, spec: Spec) -> None:
    """Refuse a declaration whose parts do not agree."""
    if SIDE in {*spec.columns, *spec.derived} or spec.rest == SIDE:
        raise _refuse(at, f"{SIDE} is the reserved column, no field")
    for option, name in spec.cellwise.items():
        if name in {SIDE, spec.rest, *spec.columns, *spec.derived}:
            raise _refuse(at, f"{option}={name!r} is a column, too")
        if spec.projections:
            raise _refuse(at, f"{option}= goes with no projections, whose cells have their own")
    if len(set(spec.cellwise.values())) < len(spec.cellwise):
        raise _refuse(at, "deadlines= and write_times= name one field")
    if spec.key is None:
        needed = [n for n in ("static", "projections", "indexes") if getattr(spec, n)]
        if needed:
            raise _refuse(at, f"{needed[0]}= needs key=: it is for a table that is made")
        return
    for name in spec.static:
        if name in spec.key.columns:
            raise _refuse(at, f"{name} is part of the key and can't be static")
    if spec.static and not spec.key.clustering:
        raise _refuse(at, "static= needs clustering=: without it a partition is one row")
    keys = [(at.collection, spec.key), *((p.name, p.key) for p in spec.projections)]
    for table, key in keys:
        for name in key.columns:
            _check_key_column(at, spec, table, name)
    names = [spec.table, spec.locator, *(p.name for p in spec.projections)]
    if len(set(names)) != len(names):
        raise _refuse(at, f"two tables have one name: {', '.join(names)}")
    for projection in spec.projections:
        for name in projection.columns or ():
            if name not in spec.columns:
                raise _refuse(at, f"projection {projection.name}: {name} is no declared column")


def _check_key_column(at: At, spec: Spec, table: str, name: str) -> None:
    made = spec.derivations.get(name)
    type_ = spec.columns.get(name) or (made.type if made else None)
    if type_ is None:
        raise _refuse(
            at,
            f"nothing says of what type the key column {name} of {table} is",
            f'declare it: columns={{"{name}": "text"}}',
        )
    if type_.args or type_.name in (JSON, *spec.types):
        # A type in a key that gets a field makes twins of old and new rows (hard case C59).
        raise _refuse(at, f"{name}, of the type {type_.cql}, can't be in the key of {table}")
    if name == spec.rest or name == SIDE:
        raise _refuse(at, f"{name} can't be in the key of {table}")
