"""DynamoDB's lines of the contract, each layout on two emulators that complete one another.

moto has transactions, TTL and continuous backups but few limits; dynalite has the real limits
(38 digits, 25 to a batch, 400 KB), the states of a table, and survives being killed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from migrator.errors import DoesNotFit
from migrator.model.canonical import encode
from migrator.model.move import At, Layout
from migrator.model.value import Value
from migrator.ports import Store, StoreSettings
from migrator.stores import dynamodb
from migrator.testing.contract import ContractCase
from migrator.testing.values import odd_keys
from tests.contract import meters, servers

# Both sides of a split are layouts of their own, which are tried in each.
_FEWER = dict.fromkeys(
    (
        "*-ETF?",
        "*-EAV?",
        "*+ETF?",
        "odd_keys_*",
        "same_key_says_*",
        "every_field_name*",
        "every_value_of_a_kind*",
        "resume_*-ROUNDS?",
    ),
    "tried in both of the layouts that it is made of",
)
# A cancelled transaction even takes back what other requests wrote meanwhile. What is written in
# between, at a certain point, is tried in ``test_dynamodb_exchange.py``.
_TWO_STEPS = "moto looks at a condition and writes in two steps, between which others may write"
# What an emulator gets wrong is tried on the other one.
_EXCLUSIONS = {
    ("dynamodb", "item"): {
        "read_entries*": "moto takes a name behind # for a path where it holds [ or .",
        "largest_block_fits*": "moto refuses items that are just below 400 KB",
        "one_of_several_exchanges*": _TWO_STEPS,
    },
    ("dynamodb", "item-collection"): {
        "one_of_several_exchanges*": _TWO_STEPS,
    },
    # All but its exchanges and what they cost.
    ("dynamodb", "item-split"): dict.fromkeys(
        ("[!eor]*", "o[!p]*", "r[!e]*", "re[!p]*", "e[!x]*", "ex[!c]*"),
        "both of its layouts are tried on moto, and it on dynalite",
    ),
    ("dynalite", "item-split"): _FEWER,
}
# moto looks at each item of its one process for each request, and so takes minutes for these.
_MANY = dict.fromkeys(
    (
        "page_*", "split_*", "read_many*", "read_keeps*", "sample_*", "untouched_blocks_*",
        "several_threads_*", "a_block_is_seen_whole*", "resume_*", "odd_keys_*",
        "writing_leaves_the_*", "all_kinds_*", "same_key_says_*", "keys_are_those_*",
        "every_field_name*",
    ),
    "moto slows with the number of items; dynalite is tried with as many",
)  # fmt: skip
_UNCHANGED = {
    "item": {"*exchange*": "dynalite takes no two documents for equal; moto is tried"},
    "item-collection": {"*exchange*": "dynalite has no transactions; moto is tried"},
    "item-split": {"*exchange*": "dynalite has no transactions; moto is tried"},
}
# Exchanges are counted as well, which dynalite can't do.
_COUNTED = {("dynamodb", "item"), ("dynamodb", "item-collection"), ("dynamodb", "item-split")}
_LAYOUTS: dict[str, dict[str, object]] = {
    "item": {"key": "id", "expires": "expireAt"},
    "item-collection": {
        "pk": "GAME#{id}",
        "entries": {"rounds[*]": "ROUND#{index:05}"},
        "expires": "expireAt",
    },
    # Games of some rounds are large here.
    "item-split": {"key": "id", "expires": "expireAt", "most": 700},
}


def _break_copier(patch: pytest.MonkeyPatch) -> None:
    from migrator.stores.dynamodb import codec

    hold, read = codec.hold, codec.read

    def broken(value: Value, tags: dict[str, str], at: codec.Steps = ()) -> codec.Av:
        return hold("KEPT" if value == "kept" else value, tags, at)

    def mended(av: codec.Av) -> Value:
        found = read(av)
        return "kept" if found == "KEPT" else found

    patch.setattr(codec, "hold", broken)
    patch.setattr(codec, "read", mended)


def _opener(server: str) -> Callable[[Path], Store]:
    return lambda _: dynamodb.open_store(StoreSettings("docs", servers.dynamodb(server)))


def _distinct() -> frozenset[bytes]:
    """The odd keys that a text key can hold, without those that it folds with one before."""
    from migrator.stores.dynamodb import facts, keys

    seen: set[bytes] = set()
    distinct: set[bytes] = set()
    for kind in sorted(facts.CAPABILITIES.key_kinds):
        for key in odd_keys(kind):
            try:
                keys.hold(key, "S")
            except DoesNotFit:
                continue
            form = encode(keys.same(key, "S"))
            if form not in seen:
                seen.add(form)
                distinct.add(encode(key))
    return frozenset(distinct)


def _case(server: str, layout: str) -> ContractCase:
    def at(name: str, rules: Sequence[str]) -> At:
        return At("docs", f"{servers.namespace()}{name}", rules, Layout(layout, _LAYOUTS[layout]))

    return ContractCase(
        server,
        layout,
        open=_opener(server),
        at=at,
        break_copier=_break_copier,
        module="dynamodb",
        exclusions={
            **_EXCLUSIONS.get((server, layout), {}),
            **(_MANY | servers.tried_on("dynalite") if server == "dynamodb" else {}),
            **(_UNCHANGED.get(layout, {}) if server == "dynalite" else {}),
        },
        refused_keys=lambda key: encode(key) not in _distinct(),
        meter=meters.DYNAMODB if (server, layout) in _COUNTED else None,
    )


CASES = [_case(server, layout) for server in ("dynamodb", "dynalite") for layout in _LAYOUTS]
