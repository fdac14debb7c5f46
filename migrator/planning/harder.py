"""Values that are harder than their kind: how each layout holds them, by the store's own word.

The plan asks the same of each value that it meets. Where a script declares the types of columns or
keys, these decide; such layouts are left out here.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from decimal import Decimal
from uuid import UUID

from migrator.model import value as v
from migrator.model.move import At, Layout
from migrator.model.value import Value, kind_of
from migrator.ports import Held, Store

VALUES: Mapping[str, Value] = {
    "int64 that an int32 would hold": v.Int64(5),
    "integer of 61 digits": 10**60 + 7,
    "double NaN": math.nan,
    "double -0.0": -0.0,
    "double infinity": math.inf,
    "decimal with a zero at the end": Decimal("1.10"),
    "decimal of 45 digits": Decimal("12345678901234567890123456789012345678901234.5"),
    "decimal NaN": Decimal("NaN"),
    "decimal128 near its end": Decimal("-9.999999999999999999999999999999999E+6144"),
    "text, empty": "",
    "text with NUL": "ab\0cd",
    "text with an unpaired surrogate": "\ud800",
    "text that is not NFC": "cafe\u0301",
    "bytes, empty": b"",
    "date after 9999": v.LongDate(2_932_897),
    "time to the nanosecond": v.TimeOfDay(1),
    "timestamp with an offset": dt.datetime(
        2024, 10, 27, 2, 30, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30))
    ),
    "timestamp to the microsecond": dt.datetime(2024, 7, 1, 12, 0, 0, 123_456, tzinfo=dt.UTC),
    "timestamp to the nanosecond": v.Instant(1_700_000_000_123_456_789),
    "timestamp after 9999": v.Instant(253_402_300_800 * v.NANOS),
    "local timestamp to the nanosecond": v.LocalTimestamp(1_700_000_000_123_456_789),
    "timeuuid": UUID("f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
    "set, empty": v.Set(),
    "set of several kinds": v.Set([1, 1.0, Decimal(1), "1", True, v.Int64(1)]),
    "list, empty": [],
    "list in a list": [[1, 2], [3]],
    "record, empty": {},
    "record with an empty name": {"": {"": ""}},
}
_RULES = ("/Value/*/*",)
# What a layout wants to be told before it can be asked.
_OPTIONS: Mapping[str, Mapping[str, object]] = {"item-collection": {"pk": "VALUE#{id}"}}


def harder(store: Store) -> dict[str, dict[str, Held]]:
    """By layout and name of a value, how it is held; without the layouts of declared types.

    Nothing is asked of a server for it.
    """
    capabilities = store.capabilities
    found: dict[str, dict[str, Held]] = {}
    for name in (name for name, facts in capabilities.layouts.items() if not facts.typed):
        layout = Layout(name, _OPTIONS.get(name, {}))
        collection = store.collection("Value", At(store.name, "values", _RULES, layout))
        kinds = capabilities.at(layout).kinds
        found[name] = {
            text: collection.needs_tag(value) or kinds[kind_of(value)]
            for text, value in VALUES.items()
        }
    return found
