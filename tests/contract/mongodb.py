"""MongoDB's lines of the contract: both layouts, on whichever server answers."""

from __future__ import annotations

import datetime as dt
import functools
import os
from collections.abc import Sequence
from uuid import UUID

import pytest

from migrator.model import value as v
from migrator.model.canonical import encode
from migrator.model.move import At, Layout
from migrator.model.value import Value
from migrator.ports import Store, StoreSettings
from migrator.stores import mongo
from migrator.testing.contract import ContractCase
from migrator.testing.values import odd_keys
from tests.conftest import server_url
from tests.contract import meters

# SecantusDB 0.7 (Python) decodes what it is sent with the driver's defaults and so refuses such
# dates; MongoDB takes every date of 64 bits. tests/stores/test_mongo.py tries them by bytes.
_DATES = "the server refuses dates outside the years 1 to 9999"
_EXCLUSIONS = {
    "values timestamp": _DATES,
    "all_kinds_in_one_block*": _DATES,
    "far_deadlines*": _DATES,
}

# Keys which SecantusDB alone takes for others: it compares binaries without their subtype and
# rounds numbers; and again its dates.
_ODD_ON_SECANTUS: tuple[Value, ...] = (
    b"",
    UUID(int=0),
    *(30.4, 5e-324, 1.7976931348623157e308),
    dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=30))),
    v.Instant(253_402_300_800 * v.NANOS),
    v.Instant(-(2**63) * 1_000_000),
)


def _break_copier(patch: pytest.MonkeyPatch) -> None:
    from migrator.stores.mongo import codec

    write, read = codec.encode, codec.decode
    patch.setattr(codec, "encode", lambda record: write(record).replace(b"kept", b"KEPT"))
    patch.setattr(codec, "decode", lambda raw: read(raw.replace(b"KEPT", b"kept")))


def _open(_: object) -> Store:
    options = {"database": f"migrator_contract_{os.getpid()}"}
    with meters.listened():
        return mongo.open_store(StoreSettings("docs", server_url("mongodb"), options))


@functools.cache
def _distinct() -> frozenset[bytes]:
    """The odd keys without those that MongoDB takes for one that came before them."""
    from migrator.stores.mongo import facts, keys

    seen: set[bytes] = set()
    distinct: set[bytes] = set()
    for kind in sorted(facts.CAPABILITIES.key_kinds):
        for key in odd_keys(kind):
            form = encode(keys.compared(key))
            if form not in seen:
                seen.add(form)
                distinct.add(encode(key))
    return frozenset(distinct - set(map(encode, _ODD_ON_SECANTUS)))


def _case(layout: str) -> ContractCase:
    def at(name: str, rules: Sequence[str]) -> At:
        return At("docs", name, rules, Layout(layout, {"expires": "expireAt"}))

    def refused(key: Value) -> bool:
        return encode(key) not in _distinct()

    return ContractCase(
        "mongodb",
        layout,
        open=_open,
        at=at,
        break_copier=_break_copier,
        module="mongo",
        exclusions=_EXCLUSIONS,
        refused_keys=refused,
        meter=meters.MONGO,
    )


CASES = [_case("document"), _case("flat")]
