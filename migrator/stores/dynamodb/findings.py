"""What a plan should tell of a table, as somebody who runs DynamoDB would."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from migrator.model.value import show
from migrator.ports import Json
from migrator.stores.dynamodb.places import Places
from migrator.stores.dynamodb.table import Table

Finding = tuple[str, str, str]
_LOOKED_AT = 1000


def schema(table: Table) -> Json:
    """Keys, indexes and TTL of a table; not its size, which changes."""
    found = table.describe()
    if found is None:
        return None
    types = {x["AttributeName"]: x["AttributeType"] for x in found["AttributeDefinitions"]}
    return {
        "keys": _keys(found, types),
        "indexes": {
            index["IndexName"]: {
                "keys": _keys(index, types),
                "projection": index.get("Projection", {}).get("ProjectionType", "ALL"),
                "local": local,
            }
            for local, index in _indexes(found)
        },
        "ttl": _ttl(table),
    }


def _keys(described: Mapping[str, Any], types: Mapping[str, str]) -> list[str]:
    return [
        f"{key['AttributeName']}:{types.get(key['AttributeName'], '?')}"
        for key in described["KeySchema"]
    ]


def _indexes(found: Mapping[str, Any]) -> Iterator[tuple[bool, Mapping[str, Any]]]:
    for local, name in ((False, "GlobalSecondaryIndexes"), (True, "LocalSecondaryIndexes")):
        for index in sorted(found.get(name) or (), key=lambda index: str(index["IndexName"])):
            yield local, index


def _ttl(table: Table) -> str | None:
    answer = table.ask("DescribeTimeToLive") or {}
    found = answer.get("TimeToLiveDescription", {})
    if found.get("TimeToLiveStatus") not in ("ENABLED", "ENABLING"):
        return None
    return str(found.get("AttributeName"))


def of(table: Table) -> Iterable[Finding]:
    """Severity, code and text of what a plan should tell."""
    found = table.describe()
    if found is None:
        return
    yield from _wrong_keys(table, found)
    yield from _capacity(table, found)
    yield from _expiry(table)
    yield from _safety(table, found)


def _wrong_keys(table: Table, found: Mapping[str, Any]) -> Iterable[Finding]:
    types = {x["AttributeName"]: x["AttributeType"] for x in found["AttributeDefinitions"]}
    options = table.options
    wanted = [f"{k.name}:{k.type}" for k in (options.hash, options.range) if k is not None]
    there = _keys(found, types)
    if there != wanted:
        yield (
            "error",
            "dynamodb-keys",
            f"the table has the keys {', '.join(there)}, and the layout says {', '.join(wanted)}",
        )
    missing = {i.name for i in options.indexes} - {i["IndexName"] for _, i in _indexes(found)}
    if missing:
        yield (
            "warning",
            "dynamodb-indexes",
            f"the table is there, without the declared indexes {', '.join(sorted(missing))}: "
            "they are made with a table, and no other way here",
        )


def of_places(places: Places) -> Iterable[Finding]:
    """What the sort keys of a layout tell: whether they sort as the elements do."""
    for template in places.entries:
        if template.widest:
            yield (
                "warning",
                "dynamodb-padding",
                f"{template.template.text} is too narrow for {template.pattern} up to index "
                f"{template.widest:,}: those sort before others, though nothing is lost",
            )
        elif any(
            slot.name.startswith("index") and not slot.width for slot in template.template.slots
        ):
            yield (
                "note",
                "dynamodb-unpadded",
                f"{template.template.text} pads no zeros: element 10 sorts before element 2",
            )


def of_others(table: Table, places: Places) -> Iterable[Finding]:
    """Whether items lie there that are of no block of this class, by the first of a scan.

    In a table of several classes that is as it should be; where it is not, a template that is
    wrong would pass by data without a word.
    """
    found = table.describe()
    if found is None or any(_wrong_keys(table, found)):
        return
    items, next_, _ = table.scan(None, None, _LOOKED_AT)
    others = [item for item in items if places.find(item) is None]
    if others:
        shown = ", ".join(
            str(next(iter(others[0][name].values()))) for name in table.options.key_names
        )
        of = f"the first {len(items):,} items" if next_ is not None else f"{len(items):,} items"
        yield (
            "warning",
            "dynamodb-others",
            f"{len(others):,} of {of} match no template of this class (as {show(shown)}) and are "
            "left alone: right where they are of other classes; else mend the templates",
        )


def _capacity(table: Table, found: Mapping[str, Any]) -> Iterable[Finding]:
    indexes = [i for _, i in _indexes(found)]
    mode = found.get("BillingModeSummary", {}).get("BillingMode", "PROVISIONED")
    units = found.get("ProvisionedThroughput", {}).get("WriteCapacityUnits", 0)
    if mode == "PROVISIONED" and units:
        yield (
            "note",
            "dynamodb-provisioned",
            f"provisioned: {units:,} write units a second bound the copy, about {units:,} KB/s; "
            "on-demand (or auto scaling, warmed up) takes more",
        )
    if indexes:
        kept = [i for i in indexes if i.get("Projection", {}).get("ProjectionType") == "ALL"]
        yield (
            "note",
            "dynamodb-index-cost",
            f"{len(indexes)} indexes: each write of an item that is in them costs up to "
            f"{1 + len(indexes)} times its units ({len(kept)} of them repeat whole items)",
        )
    if found.get("LocalSecondaryIndexes"):
        yield (
            "warning",
            "dynamodb-collection-size",
            "with local indexes all items of one partition key, in table and indexes, are "
            "bounded to 10 GB together; writes beyond are refused",
        )


def _expiry(table: Table) -> Iterable[Finding]:
    on, wanted = _ttl(table), table.options.expires
    if wanted is not None and on is None:
        yield (
            "warning",
            "dynamodb-ttl-off",
            f"time to live is off: what ends by {wanted} is kept all the same",
        )
    elif wanted is not None:
        yield (
            "note",
            "dynamodb-ttl-seconds",
            "deadlines are kept in whole seconds, rounded up; DynamoDB removes what has expired "
            "some days late",
        )
    if on is not None and on != wanted:
        yield (
            "warning",
            "dynamodb-ttl",
            f"items expire by {on}, which the layout does not declare: what expires during the "
            "move shows as a difference",
        )


def _safety(table: Table, found: Mapping[str, Any]) -> Iterable[Finding]:
    if not found.get("StreamSpecification", {}).get("StreamEnabled"):
        yield "note", "dynamodb-stream", "it has no stream: a live move from it has to turn one on"
    answer = table.ask("DescribeContinuousBackups")
    backups = (answer or {}).get("ContinuousBackupsDescription", {})
    recovery = backups.get("PointInTimeRecoveryDescription", {})
    if recovery.get("PointInTimeRecoveryStatus") == "DISABLED":
        yield "note", "dynamodb-recovery", "point-in-time recovery is off"
