"""Numbers of blocks: the same for what is equal, another for what is not."""

from __future__ import annotations

from decimal import Decimal

from migrator.engine.digests import digest
from migrator.model.block import Block
from migrator.model.value import Int64, Value


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
