"""Counting different things in little memory."""

from __future__ import annotations

from migrator.model.distinct import Distinct


def counted(numbers: range) -> Distinct:
    found = Distinct()
    for number in numbers:
        found.add(str(number).encode())
    return found


def test_few_are_counted_exactly_however_often_they_come() -> None:
    found = counted(range(1000))
    for number in range(500):
        found.add(str(number).encode())
    assert found.count == 1000
    assert Distinct.read(found.text()).hashes == found.hashes


def test_many_are_counted_about_and_together() -> None:
    found = counted(range(30_000))
    assert abs(found.count - 30_000) < 3_000
    other = counted(range(20_000, 50_000))
    other.add_all(found.hashes)
    # Those that both saw count once, whoever is added to whom.
    assert other.hashes == counted(range(50_000)).hashes
    assert abs(other.count - 50_000) < 5_000
    assert len(Distinct.read(other.text()).hashes) == len(other.hashes) == 1024
