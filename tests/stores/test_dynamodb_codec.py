"""DynamoDB without a server: numbers, carriers, key templates; and two decoders that agree."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrator import At, item_collection
from migrator.errors import DoesNotFit, Refused
from migrator.model import value as v
from migrator.model.block import Aggregate, Block, cut
from migrator.model.canonical import equal
from migrator.model.value import Value
from migrator.stores.dynamodb import codec, keys, observer, sizes
from migrator.stores.dynamodb.facts import needs_tag
from migrator.stores.dynamodb.options import options_of
from migrator.stores.dynamodb.places import Places
from migrator.testing import strategies

CLS = "Order"


def both(value: Value) -> tuple[Value, Value]:
    """What copier and observer read of a value."""
    tags: dict[str, str] = {}
    av = codec.hold(value, tags)
    wire = {path or ".": tag for path, tag in tags.items()}
    return codec.release(codec.read(av), tags), observer.value_of(av, wire)


@settings(max_examples=200)
@given(strategies.values())
def test_every_value_comes_back_by_both_decoders(value: Value) -> None:
    copied, observed = both(value)
    assert equal(copied, value)
    assert equal(observed, value)


@pytest.mark.parametrize(
    ("value", "held"),
    [
        (42, {"N": "42"}),
        (10**37, {"N": str(10**37)}),
        (v.Int64(7), {"N": "7"}),
        (30.4, {"N": "30.4"}),
        (-0.0, {"S": "-0.0"}),
        (math.nan, {"S": "nan"}),
        (5e-324, {"S": "5e-324"}),
        (Decimal("1.5"), {"N": "1.5"}),
        (Decimal("30.40"), {"N": "30.4"}),
        (Decimal("1E+3"), {"N": "1E+3"}),
        (Decimal("0.00"), {"N": "0"}),
        (Decimal("-0"), {"S": "-0"}),
        (Decimal("1E-6000"), {"S": "1E-6000"}),
        (10**60 + 7, {"S": str(10**60 + 7)}),
        (v.Set(["a"]), {"SS": ["a"]}),
        (v.Set([b"a"]), {"BS": ["YQ=="]}),
        (v.Set([1, Decimal("1.5")]), {"NS": ["1", "1.5"]}),
        (v.Set(), {"L": []}),
        (v.Set([1, "1"]), {"L": [{"N": "1"}, {"S": "1"}]}),
        ("", {"S": ""}),
        ("\ud800", {"B": "7aCA"}),
        ({"": 1}, {"M": {"%": {"N": "1"}}}),
    ],
)
def test_what_lies_there_is_what_others_expect(value: Value, held: codec.Av) -> None:
    av = codec.hold(value, {})
    for type_ in ("SS", "NS", "L"):
        if type_ in av and type_ in held:
            assert sorted(map(str, av[type_])) == sorted(map(str, held[type_]))
            return
    assert av == held
    assert all(both_ is not None for both_ in both(value))


@pytest.mark.parametrize("changed", ["31.5", "1E+2", "0.1"])
def test_a_number_that_others_change_keeps_its_kind_where_it_can(changed: str) -> None:
    tags: dict[str, str] = {}
    codec.hold(30.4, tags)
    assert codec.release(codec.read({"N": changed}), tags) == float(changed)
    exact = "0.1000000000000000055511151231257827"
    assert codec.release(codec.read({"N": exact}), tags) == Decimal(exact)


def test_a_tag_that_does_not_fit_is_passed_by() -> None:
    for tag in ("decimal:-2", "int64", "double", "names", "uuid", "nonsense"):
        assert codec.release(Decimal("1.234567890123456789012345"), {"": tag}) == Decimal(
            "1.234567890123456789012345"
        )


def test_needs_tag_says_what_hold_does() -> None:
    assert needs_tag(5) is None
    assert needs_tag("a\0b") is None
    for value in (v.Int64(5), Decimal("1.50"), "\ud800", v.Set(), 10**60 + 7, {"": 1}):
        assert needs_tag(value) is not None, value
    assert needs_tag(1.5) is None  # doubles are tagged by their kind
    held = needs_tag(math.inf)
    assert held is not None
    assert held.type == "S"


@settings(max_examples=100)
@given(strategies.values())
def test_a_size_is_never_below_what_the_bytes_are(value: Value) -> None:
    import msgspec

    av = codec.hold(value, {})
    assert 0 <= sizes.size(av) <= len(msgspec.json.encode(av)) + 8


@given(strategies.identifiers())
def test_a_key_comes_back_or_is_refused(id: Value) -> None:
    try:
        av, tag = keys.hold(id, "S")
    except DoesNotFit:
        return
    assert equal(keys.read(av, tag), id)
    assert equal(observer.key_of(av, {"S": tag} if tag else None), id)


# ---------------------------------------------------------------- templates


def places(
    pk: str, sk: str = "{entry}", rules: str = "/Order/*/lines[*]", **more: object
) -> Places:
    layout = item_collection(pk, sk, **more)  # type: ignore[arg-type]
    at = At("store", "table", [rules, "/Order/*"] if rules != "/Order/*" else [rules], layout)
    return Places(options_of(at, "item"), CLS, at.rules(CLS), "store:table")


@pytest.mark.parametrize(
    ("pk", "sk", "more"),
    [
        ("ORDER", "{entry}", {}),
        ("ORDER#{date}", "{entry}", {}),
        ("O#{id}{date}", "{entry}", {}),
        ("O#{id}X{date}", "{entry}", {}),
        ("O#{id}#{id}", "{entry}", {}),
        ("O#{id", "{entry}", {}),
        ("O#{}", "{entry}", {}),
        ("O#{user}", "{id}{entry}", {}),
        ("O#{user}", "A{id}A{entry}", {}),
        ("O#{id}", "A#{entry}#B", {}),
        ("O#{id}", "META", {}),
        ("O#{id}", "{entry}", {"entries": {"lines[*]": "LINE"}}),
        ("O#{id}", "{entry}", {"entries": {"lines[*].x[*]": "LINE#{index}"}}),
        ("O#{id}", "{entry}", {"entries": {"lines[*]": "LINE#{number}"}}),
        ("O#{id[1]}", "{entry}", {}),
    ],
)
def test_a_template_where_two_blocks_could_collide_is_refused(
    pk: str, sk: str, more: dict[str, object]
) -> None:
    with pytest.raises(Refused):
        places(pk, sk, **more)


TEXTS = st.one_of(st.text("#%~{}.a1\\", min_size=1, max_size=6), strategies.texts())


@settings(max_examples=200)
@given(TEXTS, TEXTS, st.integers(0, 200_000))
def test_keys_lead_back_to_block_and_entry(id: str, user: str, index: int) -> None:
    here = places("USER#{user}", "ORDER#{id}#{entry}", entries={"lines[*]": "L#{index:03}"})
    value = {"user": user, "lines": [], "L#001": 1}
    block = cut(Aggregate(id, value), At("s", "ttt", ["/Order/*/*"]).rules(CLS))
    try:
        place = here.of(block)
    except DoesNotFit:
        return
    for path in ("", f"lines[{index}]", "L#001", "user", "~x", "a.b", "%41"):
        found = here.find(here.key(place, here.sk(id, place, path)))
        assert found is not None
        assert (found.place, found.id, found.path, found.stage) == (place, id, path, None)
        waiting = here.staged(place, here.sk(id, place, path), "00ff")
        found = here.find(here.key(place, waiting))
        assert found is not None
        assert (found.path, found.stage) == (path, "00ff")


@settings(max_examples=200)
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=2, max_size=2, unique=True))
def test_two_blocks_never_give_one_key(pairs: list[tuple[str, str]]) -> None:
    here = places("A#{id[0]}#{id[1]}")
    try:
        one, two = (here.of(Block([a, b], {})) for a, b in pairs)
    except DoesNotFit:
        return
    assert one != two
    for (a, b), place in zip(pairs, (one, two), strict=True):
        found = here.find(here.key(place, "."))
        assert found is not None
        assert here.read_id(found.id, None) == [a, b]


def test_padded_numbers_sort_as_numbers_do() -> None:
    here = places("O#{id}", entries={"lines[*]": "LINE#{index:04}"})
    texts = [here.entry(f"lines[{i}]") for i in (0, 2, 10, 999)]
    assert texts == sorted(texts) == ["LINE#0000", "LINE#0002", "LINE#0010", "LINE#0999"]
    here.entry("lines[10000]")
    assert here.entries[0].widest == 10_000


def test_items_of_other_classes_are_passed_by() -> None:
    here = places("ORDER#{id}", entries={"lines[*]": "LINE#{index:04}"})
    assert here.find({"pk": {"S": "USER#1"}, "sk": {"S": "."}}) is None
    assert here.find({"pk": {"S": "ORDER#1"}, "sk": {"S": "LINE#1"}}) is None
    assert here.find({"pk": {"S": "ORDER#1"}, "sk": {"S": "NOTE#1"}}) is None
    assert here.find({"pk": {"S": "ORDER#1"}, "sk": {"S": "LINE#0001"}}) is not None
