"""Tags: a value comes back from what a store can hold, whatever that is."""

from __future__ import annotations

import copy
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given, settings

from migrator.model import value as v
from migrator.model.canonical import encode, equal
from migrator.model.tags import Tags, from_carrier, lower, raise_, to_carrier
from migrator.model.value import Value
from migrator.model.witness import untag
from migrator.testing import strategies


def _valid(text: str) -> bool:
    try:
        return "\0" not in text and bool(text.encode() or True)
    except UnicodeEncodeError:
        return False


def only_text(value: Value) -> bool:
    """A store such as Redis that holds nothing but well-formed text."""
    return type(value) is str and _valid(value)


def text_and_bytes(value: Value) -> bool:
    return type(value) is bytes or only_text(value)


def json_like(value: Value) -> bool:
    return value is None or type(value) in (bool, float) or only_text(value)


def document_like(value: Value) -> bool:
    kinds = (type(None), bool, int, v.Int64, float, bytes, v.ObjectId, v.Binary)
    return type(value) in kinds or only_text(value)


def everything(value: Value) -> bool:
    return True


PREDICATES = [only_text, text_and_bytes, json_like, document_like, everything]


def holds_only(value: Value, native: Callable[[Value], bool]) -> bool:
    if type(value) is dict:
        return all(holds_only(item, native) for item in value.values())
    if type(value) is list:
        return all(holds_only(item, native) for item in value)
    return native(value)


@pytest.mark.parametrize("native", PREDICATES)
@settings(max_examples=100, deadline=None)
@given(value=strategies.values())
def test_values_come_back_from_their_carriers(
    native: Callable[[Value], bool], value: Value
) -> None:
    before = encode(value)
    tags: Tags = {}
    held = lower(value, native, tags=tags)
    assert holds_only(held, native)
    assert encode(value) == before, "the value itself was changed"
    assert encode(untag(held, tags)) == before, "the second reader disagrees"
    assert encode(raise_(copy.deepcopy(held), tags)) == before
    raise_(held, tags)
    assert encode(value) == before, "what is shared with the value was changed"


def test_nothing_is_rebuilt_where_nothing_is_tagged() -> None:
    value: Value = {"a": [1, {"b": "x"}], "c": Decimal(1)}
    tags: Tags = {}
    held = lower(value, lambda item: type(item) is not Decimal, tags=tags)
    assert held == {"a": [1, {"b": "x"}], "c": "1"}
    assert held["a"] is value["a"]  # type: ignore[index]
    assert tags == {"c": "decimal"}


@pytest.mark.parametrize(
    ("tag", "held"),
    [
        ("int64", "one"),
        ("int64", "9223372036854775808"),
        ("int64", 1),
        ("integer", "٣"),
        ("decimal", "1,5"),
        ("uuid", "x"),
        ("objectid", "00"),
        ("objectid", "zz"),
        ("bytes", "%"),
        ("binary:x", ""),
        ("boolean", "TRUE"),
        ("null", "x"),
        ("timestamp", "2024-01-01T00:00:00"),
        ("timestamp", "soon"),
        ("local timestamp", "2024-01-01T00:00:00+00:00"),
        ("timestamp", "0001-01-01T00:00:00+05:00"),
        ("interval", "P1M"),
        ("bson timestamp", "1"),
        ("reference", "Game"),
        ("reference", ":1"),
        ("reference:int64", "Game:x"),
        ("set", "x"),
        ("text", "x"),
        ("text", b"\xff"),
        ("text/reference", "Game:1"),
        ("bytes/text/reference", "x"),
        ("opaque:a", "%"),
        ("of another version", "x"),
        ("", "x"),
    ],
)
def test_a_tag_that_no_longer_fits_is_ignored(tag: str, held: Value) -> None:
    assert raise_({"a": [held]}, {"a[0]": tag}) == {"a": [held]}
    with pytest.raises((ValueError, TypeError)):
        from_carrier(tag, held)


def test_tags_of_what_is_gone_are_ignored() -> None:
    tags = {"a": "int64", "b.c": "int64", "b[0]": "int64", "d[5]": "int64", "d[0].x": "int64"}
    assert raise_({"b": 1, "d": ["2"]}, tags) == {"b": 1, "d": ["2"]}


def test_a_damaged_path_is_no_tag() -> None:
    with pytest.raises(ValueError, match="no access path"):
        raise_({}, {"a..b": "int64"})


def test_members_of_nested_sets_keep_their_kinds() -> None:
    value = v.Set([v.Set([1, v.Int64(1), Decimal("1.0")]), v.Set([]), {"a": v.Set([2.0])}])
    tags: Tags = {}
    held = lower(value, only_text, tags=tags)
    assert type(held) is list
    assert equal(raise_(held, tags), value)


def test_values_nested_200_deep_are_carried() -> None:
    value: Value = Decimal(1)
    for i in range(200):
        value = [value] if i % 3 else {"a": value} if i % 2 else v.Set([value])
    tags: Tags = {}
    held = lower(value, only_text, tags=tags)
    assert equal(raise_(held, tags), value)


@settings(max_examples=100, deadline=None)
@given(strategies.scalars())
def test_each_scalar_has_a_carrier(value: Value) -> None:
    tag, carrier = to_carrier(value)
    assert type(carrier) in (str, bytes)
    assert equal(from_carrier(tag, carrier), value)
