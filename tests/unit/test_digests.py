"""Numbers of blocks: the same for what is equal, another for what is not."""

from __future__ import annotations

import math
import struct
from decimal import Decimal

from hypothesis import given

from migrator.engine.digests import digest, exact
from migrator.model.block import Block
from migrator.model.canonical import encode
from migrator.model.value import Int64, Value
from migrator.testing.strategies import values


def number(*values: Value, id: Value = "1") -> int:
    return digest(Block(id, {"": {"a": list(values)}}))


def test_a_number_of_64_bits_is_one_however_it_is_written() -> None:
    for beside in ([], [Decimal("1.1")], [Int64(5)]):
        assert number(2**40, *beside) == number(Int64(2**40), *beside)
    assert number(id=-(2**63)) == number(id=Int64(-(2**63)))


def test_another_kind_is_another_number() -> None:
    assert number(5) != number(Int64(5))
    assert number(1) != number(True) != number(1.0) != number("1")
    assert number(1, id=5) != number(1, id="5")


def test_an_exact_number_is_that_of_the_canonical_form() -> None:
    def exactly(value: Value) -> int:
        return exact(Block("1", {"": value}))

    other_nan = struct.unpack(">d", b"\x7f\xf8\x00\x00\x00\x00\x00\x01")[0]
    assert exactly({"a": 1, "b": [{"c": 2, "d": 3}]}) == exactly({"b": [{"d": 3, "c": 2}], "a": 1})
    assert exactly([math.nan]) == exactly([other_nan])
    assert exactly([1, 2]) != exactly([2, 1])
    assert exactly([Decimal(1)]) != exactly(["1"])


@given(values(), values())
def test_values_have_the_same_exact_number_where_their_canonical_forms_are_the_same(
    one: Value, other: Value
) -> None:
    same = exact(Block("1", {"": one})) == exact(Block("1", {"": other}))
    assert same is (encode(one) == encode(other))
    assert exact(Block("1", {"": one})) == exact(Block("1", {"": turned(one)}))


def turned(value: Value) -> Value:
    """The same value, its fields in another order."""
    if type(value) is dict:
        return {name: turned(item) for name, item in reversed(value.items())}
    return [turned(item) for item in value] if type(value) is list else value
