"""The options of a layout: names and kinds of keys, indexes, billing; checked once, as data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from migrator.errors import Refused
from migrator.model.move import At
from migrator.stores.dynamodb import sizes

ITEM, GATHERED, SPLIT = "item", "item-collection", "item-split"
SIDE = "_migrator"
REST = "_"
ON_DEMAND, PROVISIONED = "on-demand", "provisioned"
_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}")
_BOTH = {"expires", "billing", "read_units", "write_units", "indexes", "attributes"}
_KNOWN = {
    ITEM: _BOTH | {"key"},
    SPLIT: _BOTH | {"key", "most"},
    GATHERED: _BOTH | {"pk", "sk", "entries", "keys", "class_attribute"},
}
_INDEX = {"name", "hash", "sort", "local", "project"}


@dataclass(frozen=True)
class Attribute:
    """A key attribute: its name, and whether it is text (S), a number (N) or bytes (B)."""

    name: str
    type: str = "S"

    @classmethod
    def of(cls, given: object, where: str) -> Attribute:
        """From ``name`` or ``name:N``. Raises Refused."""
        if isinstance(given, str):
            name, colon, type_ = given.rpartition(":")
            found = cls(name, type_) if colon and type_ in ("S", "N", "B") else cls(given)
            if 0 < len(found.name.encode("utf-8", "replace")) <= 255 and found.name not in (
                SIDE,
                REST,
            ):
                return found
        raise Refused(f"{where}: {given!r} can't be a key attribute", hint='such as "id" or "id:N"')


@dataclass(frozen=True)
class Index:
    """A secondary index: local ones share the partition key of the table."""

    name: str
    hash: Attribute
    sort: Attribute | None
    local: bool
    project: object

    def request(self) -> dict[str, Any]:
        keys = [{"AttributeName": self.hash.name, "KeyType": "HASH"}]
        if self.sort is not None:
            keys.append({"AttributeName": self.sort.name, "KeyType": "RANGE"})
        projection: dict[str, Any] = {"ProjectionType": "INCLUDE", "NonKeyAttributes": self.project}
        if self.project in ("all", "keys"):
            projection = {"ProjectionType": "ALL" if self.project == "all" else "KEYS_ONLY"}
        return {"IndexName": self.name, "KeySchema": keys, "Projection": projection}


@dataclass(frozen=True)
class Options:
    """What a location declares of its table."""

    layout: str
    hash: Attribute
    range: Attribute | None = None
    expires: str | None = None
    billing: str = ON_DEMAND
    units: tuple[int, int] = (0, 0)
    indexes: Sequence[Index] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)
    pk: str = ""
    sk: str = ""
    entries: Mapping[str, str] = field(default_factory=dict)
    class_attribute: str | None = None
    typed: bool = False
    most: int = sizes.ITEM_BYTES
    told_by: str = "S"
    """The type of the key attribute by which block keys are told apart: of the table of items,
    where this is the one beside."""

    @property
    def key_names(self) -> tuple[str, ...]:
        return (self.hash.name,) if self.range is None else (self.hash.name, self.range.name)

    @property
    def index_keys(self) -> dict[str, str]:
        """The attributes that are keys of indexes, with their types."""
        found = [(i.hash, i.sort) for i in self.indexes]
        return {
            attribute.name: attribute.type
            for pair in found
            for attribute in pair
            if attribute is not None and attribute.name not in self.key_names
        }

    @property
    def reserved(self) -> set[str]:
        """Attributes that are no entries and no fields."""
        named = {self.expires, self.class_attribute} - {None}
        return {SIDE, REST, *self.key_names, *self.attributes, *map(str, named)}

    def table(self) -> dict[str, Any]:
        """The request that creates the table, without its name."""
        keys = [{"AttributeName": self.hash.name, "KeyType": "HASH"}]
        types = {self.hash.name: self.hash.type}
        if self.range is not None:
            keys.append({"AttributeName": self.range.name, "KeyType": "RANGE"})
            types[self.range.name] = self.range.type
        types |= self.index_keys
        request: dict[str, Any] = {
            "KeySchema": keys,
            "AttributeDefinitions": [
                {"AttributeName": name, "AttributeType": type_} for name, type_ in types.items()
            ],
            "BillingMode": "PAY_PER_REQUEST",
        }
        if self.billing == PROVISIONED:
            units = {"ReadCapacityUnits": self.units[0], "WriteCapacityUnits": self.units[1]}
            request |= {"BillingMode": "PROVISIONED", "ProvisionedThroughput": units}
        for name, local in (("GlobalSecondaryIndexes", False), ("LocalSecondaryIndexes", True)):
            indexes = [index.request() for index in self.indexes if index.local is local]
            if self.billing == PROVISIONED and not local:
                for index in indexes:
                    index["ProvisionedThroughput"] = request["ProvisionedThroughput"]
            if indexes:
                request[name] = indexes
        return request


def options_of(at: At, default: str) -> Options:
    """The options at a location. Raises Refused for what this store does not know."""
    name = at.layout.name if at.layout else default
    given = dict(at.layout.options) if at.layout else {}
    if at.tables is not None or name not in _KNOWN:
        raise Refused(
            f"{at}: DynamoDB has no layout {name!r}", hint=f"choose one of: {', '.join(_KNOWN)}"
        )
    if _TABLE.fullmatch(at.collection) is None:
        raise Refused(
            f"{at}: {at.collection!r} can't be the name of a table",
            hint="3 to 255 letters, digits, _, - and .",
        )
    unknown = given.keys() - _KNOWN[name]
    if unknown:
        raise Refused(
            f"{at}: layout {name} has no option {', '.join(sorted(unknown))}",
            hint=f"options: {', '.join(sorted(_KNOWN[name]))}",
        )
    try:
        return _checked(name, given, str(at))
    except (TypeError, ValueError, KeyError) as error:
        raise Refused(f"{at}: the options of layout {name} are wrong: {error}") from None


def _checked(name: str, given: dict[str, Any], where: str) -> Options:
    billing = given.get("billing", ON_DEMAND)
    units = (given.get("read_units", 0), given.get("write_units", 0))
    if billing not in (ON_DEMAND, PROVISIONED):
        raise Refused(f"{where}: billing is {ON_DEMAND} or {PROVISIONED}, not {billing!r}")
    if any(type(n) is not int or (n > 0) is not (billing == PROVISIONED) for n in units):
        raise Refused(
            f"{where}: read_units and write_units go with billing={PROVISIONED!r}, above zero"
        )
    keys: Sequence[object] = (given.get("key", "id"),)
    if name == GATHERED:
        keys = tuple(given.get("keys", ("pk", "sk")))
        if len(keys) != 2:
            raise Refused(f"{where}: keys are two: the partition key and the sort key")
    hash_, *rest = (Attribute.of(key, where) for key in keys)
    if name == GATHERED and {hash_.type, rest[0].type} != {"S"}:
        raise Refused(f"{where}: keys made by templates are text")
    found = Options(
        name,
        hash_,
        rest[0] if rest else None,
        given.get("expires"),
        billing,
        units,
        tuple(_index(i, hash_, where) for i in given.get("indexes", ())),
        dict(given.get("attributes", {})),
        str(given.get("pk", "")),
        str(given.get("sk", "{entry}")),
        dict(given.get("entries", {})),
        given.get("class_attribute"),
        ":" in str(given.get("key", "")),
        given.get("most", sizes.ITEM_BYTES),
    )
    if type(found.most) is not int or not 0 < found.most <= sizes.ITEM_BYTES:
        raise Refused(f"{where}: split is True, or up to {sizes.ITEM_BYTES:,} bytes")
    for reserved in (found.expires, found.class_attribute):
        if reserved is not None and (
            type(reserved) is not str
            or reserved in (SIDE, REST, "", *found.key_names, *found.attributes)
        ):
            raise Refused(f"{where}: {reserved!r} can't be an attribute beside the entries")
    return found


def _index(given: Any, table_hash: Attribute, where: str) -> Index:
    if not isinstance(given, Mapping) or given.keys() - _INDEX or "name" not in given:
        raise Refused(f"{where}: an index is made by index(name, hash, sort=...)")
    if _TABLE.fullmatch(str(given["name"])) is None:
        raise Refused(
            f"{where}: {given['name']!r} can't be the name of an index (3 to 255 letters)"
        )
    local = bool(given.get("local", False))
    hash_ = table_hash if local else Attribute.of(given.get("hash"), where)
    sort = given.get("sort")
    project = given.get("project", "all")
    if project not in ("all", "keys"):
        project = [str(x) for x in project]
    if local and sort is None:
        raise Refused(f"{where}: local index {given['name']} needs a sort key")
    return Index(
        str(given["name"]),
        hash_,
        None if sort is None else Attribute.of(sort, where),
        local,
        project,
    )
