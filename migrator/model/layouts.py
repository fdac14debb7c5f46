"""Layouts with options, as a script writes them: plain functions that give a ``Layout``.

What they take is data that the plan prints and the fingerprint hashes; the store checks it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal

from migrator.model.move import At, Layout


def cassandra_row(columns: str | Sequence[str] = ()) -> Layout:
    """Describe a table of Cassandra with a row for each block (layout ``row``).

    ``columns`` are entries, by access path, that get a column of their own; all others lie in
    a map, each as a cell of the row.
    """
    return Layout("row", {"columns": _names(columns)} if columns else {})


def cassandra_table(
    *,
    key: str | Sequence[str] | None = None,
    clustering: str | Sequence[str] = (),
    id: str | Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    static: str | Sequence[str] = (),
    derived: Mapping[str, str] | None = None,
    types: Mapping[str, Mapping[str, str]] | None = None,
    nulls: Literal["absent", "null"] = "absent",
    indexes: str | Sequence[str] | Mapping[str, str] = (),
    projections: Sequence[Mapping[str, object]] = (),
    rest: str | None = None,
    deadlines: str | None = None,
    write_times: str | None = None,
) -> Layout:
    """Describe a table of Cassandra with typed columns (layout ``table``).

    ``key`` names the columns of the partition key, ``clustering`` those that order the rows of
    a partition (``"day desc"``); without a key the table is there and the catalogue knows.
    ``id`` names the columns that give the block key (default: the whole key); where the key
    holds more, a locator is kept beside the table. ``columns`` declares the types of the
    top-level fields, in CQL or as ``json`` (text) and ``timestamp local`` (without a zone);
    ``types`` the user-defined types among them, ``static`` the columns that a partition has
    once. ``derived`` are columns that are no fields: ``"month of day"`` (year, month, day,
    hour), ``"bucket 16 of block key"``, ``"block key"``. ``nulls`` says what an unset column
    stands for. ``indexes`` are columns with an index (``sai``, or a mapping to ``2i``).
    ``projections`` repeat the blocks under other keys. ``rest`` names a column that takes all
    other fields, as JSON; without one a field that has no column is refused. ``deadlines`` names
    the field that is to hold the deadlines of single fields, a record of timestamps: the times to
    live of their cells, where these end before the row does. ``write_times`` names the field that
    is to hold when each field was written, in microseconds, for moves at rest: with which their
    cells are stamped in the target.
    """
    options: dict[str, object] = {
        "key": key if key is None else _names(key),
        "clustering": _names(clustering),
        "id": _names(id),
        "columns": dict(columns or {}),
        "static": _names(static),
        "derived": dict(derived or {}),
        "types": {name: dict(fields) for name, fields in (types or {}).items()},
        "nulls": "" if nulls == "absent" else nulls,
        "indexes": dict(indexes) if isinstance(indexes, Mapping) else _names(indexes),
        "projections": list(projections),
        "rest": rest,
        "deadlines": deadlines,
        "write_times": write_times,
    }
    return Layout("table", {name: given for name, given in options.items() if given})


def projection(
    name: str,
    *,
    key: str | Sequence[str],
    clustering: str | Sequence[str] = (),
    columns: str | Sequence[str] | None = None,
    derived: Mapping[str, str] | None = None,
) -> Mapping[str, object]:
    """Describe a table that repeats the blocks of ``cassandra_table`` under a key of its own.

    ``name`` is the table's; ``columns`` what it repeats (default: everything); the key has to
    hold the columns of the block key. A block without a value for the key is left out there.
    """
    options: dict[str, object] = {
        "name": name,
        "key": _names(key),
        "clustering": _names(clustering),
        "columns": columns if columns is None else _names(columns),
        "derived": dict(derived or {}),
    }
    return {
        word: given
        for word, given in options.items()
        if given or (word == "columns" and given is not None)
    }


def redis_native(
    key: str,
    type: str = "hash",
    *,
    field: str = "",
    parts: Mapping[str, tuple[str, str]] | None = None,
    **more_parts: tuple[str, str],
) -> Layout:
    """Describe keys of Redis as an application lays them out itself (layout ``native``).

    ``key`` is the key of a block, ``{id}`` its identifier (``"user:{id}"``; a brace itself is
    written twice), and ``type`` what lies there: ``hash``, ``list``, ``set`` (each also ``of
    json``), ``sorted set``, ``stream``, ``string``, ``json``, ``integer``. A hash or JSON holds
    the fields of the record, another type is the value of one ``field``. Further fields lie under
    keys of their own: ``rounds=("user:{id}:rounds", "list of json")``; ``parts`` takes those
    whose names are no Python names. ``ends=("user:{id}", "deadlines")``, under the key of a hash,
    are the deadlines of its single fields: a record of timestamps.
    """
    keys = {field: [key, type]}
    for name, (template, kind) in {**(parts or {}), **more_parts}.items():
        keys[name] = [template, kind]
    return Layout("native", {"keys": keys})


def index(
    name: str,
    hash: str | None = None,
    sort: str | None = None,
    *,
    local: bool = False,
    project: Literal["all", "keys"] | Sequence[str] = "all",
) -> Mapping[str, object]:
    """Describe a secondary index of DynamoDB by the attributes that are its keys.

    An attribute is text unless it says otherwise: ``"score:N"``, ``"digest:B"``. A ``local``
    index has the table's partition key and a ``sort`` of its own. ``project`` is what the index
    repeats: ``all``, ``keys``, or a list of attributes.
    """
    given = {"name": name, "hash": hash, "sort": sort, "local": local or None}
    shown = project if isinstance(project, str) else list(project)
    return {k: x for k, x in given.items() if x is not None} | {"project": shown}


def item(
    key: str = "id",
    *,
    expires: str | None = None,
    attributes: Mapping[str, str] | None = None,
    indexes: Sequence[Mapping[str, object]] = (),
    billing: Literal["on-demand", "provisioned"] = "on-demand",
    read_units: int = 0,
    write_units: int = 0,
    split: bool | int = False,
) -> Layout:
    """Describe a table of DynamoDB with an item for each block (layout ``item``).

    ``key`` names the key attribute, with its type where that is not text (``"id:N"``); ``expires``
    the TTL attribute. ``attributes`` are made of others for the indexes, by template
    (``{"gsi1pk": "GENRE#{genre}"}``); ``indexes`` come from ``index``. A provisioned table takes
    its units per second. ``split`` lays a block that is too large for an item into an item
    collection beside (layout ``item-split``), as a move with ``oversize="split"`` does; a number
    says from how many bytes on.
    """
    name = "item-split" if split else "item"
    own = {"key": key} if isinstance(split, bool) else {"key": key, "most": split}
    return _dynamodb(name, own, expires, attributes, indexes, billing, read_units, write_units)


def splitting(layout: Layout) -> Layout | None:
    """The layout that splits what is too large for this one; None where there is none."""
    if layout.name in ("item", "item-split"):
        return Layout("item-split", layout.options)
    return None


def item_collection(
    pk: str,
    sk: str = "{entry}",
    *,
    entries: Mapping[str, str] | None = None,
    keys: tuple[str, str] = ("pk", "sk"),
    class_attribute: str | None = None,
    expires: str | None = None,
    attributes: Mapping[str, str] | None = None,
    indexes: Sequence[Mapping[str, object]] = (),
    billing: Literal["on-demand", "provisioned"] = "on-demand",
    read_units: int = 0,
    write_units: int = 0,
) -> Layout:
    """Describe items of DynamoDB, one for each entry of a block (layout ``item-collection``).

    ``pk`` and ``sk`` are templates: ``PLAYER#{id}``, ``ORDER#{date}#{id}#{entry}``; slots are the
    identifier, a part of a composite one (``{id[0]}``), access paths, padded numbers
    (``{number:05}``), and ``{entry}`` at the end of ``sk``. ``entries`` says what stands for it
    by pattern: ``{"rounds[*]": "ROUND#{index:05}", "": "PROFILE"}``; the rest is named by access
    path. ``keys`` names the key attributes; ``class_attribute`` one that holds the class. Several
    classes may share a table. The other options are those of ``item``.
    """
    own = {
        "pk": pk,
        "sk": sk,
        "entries": dict(entries or {}),
        "keys": list(keys),
        "class_attribute": class_attribute,
    }
    return _dynamodb(
        "item-collection", own, expires, attributes, indexes, billing, read_units, write_units
    )


def _dynamodb(
    name: str,
    own: Mapping[str, object],
    expires: str | None,
    attributes: Mapping[str, str] | None,
    indexes: Sequence[Mapping[str, object]],
    billing: str,
    read_units: int,
    write_units: int,
) -> Layout:
    options: dict[str, object] = {
        **own,
        "expires": expires,
        "attributes": dict(attributes or {}),
        "indexes": list(indexes),
        "billing": billing,
        "read_units": read_units,
        "write_units": write_units,
    }
    return Layout(name, {word: given for word, given in options.items() if given})


def _names(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


_USUAL = {"sk": "{entry}", "keys": ["pk", "sk"], "billing": "on-demand"}


def written(at: At) -> str:
    """A location as a script writes it. Not for ``tables(...)``."""
    parts = [_literal(at.store), _literal(at.collection)]
    if at.representation:
        parts.append(_literal(list(at.representation)))
    if at.layout is not None:
        parts.append(("" if at.representation else "layout=") + _call(at.layout))
    return f"At({', '.join(parts)})"


def _call(layout: Layout) -> str:
    given = dict(layout.options)
    if not given:
        return _literal(layout.name)
    if layout.name not in ("item", "item-collection", "item-split"):
        return f"Layout({_literal(layout.name)}, {_literal(given)})"
    first = given.pop("pk" if layout.name == "item-collection" else "key", None)
    texts = [] if first is None else [_literal(first)]
    most = given.pop("most", True)
    told = {name: option for name, option in given.items() if option != _USUAL.get(name)}
    texts += [f"{name}={_literal(option)}" for name, option in told.items()]
    if layout.name == "item-split":
        texts.append(f"split={most}")
        return f"item({', '.join(texts)})"
    return f"{layout.name.replace('-', '_')}({', '.join(texts)})"


def _literal(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, Mapping):
        pairs = (f"{_literal(name)}: {_literal(item)}" for name, item in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    return repr(value)
