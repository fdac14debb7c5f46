"""Pieces of Cassandra's token ring: they cover it, and end where replicas change."""

from __future__ import annotations

from itertools import pairwise

import pytest

from migrator.stores.cassandra.ring import FIRST, LAST, pieces

# Three nodes that own about a third each, their tokens off the even cuts by a little.
NODES = [FIRST + 10**15, FIRST + 2**64 // 3 + 10**15, FIRST + 2 * (2**64 // 3) - 10**15]


@pytest.mark.parametrize("ring", [[], [0], NODES, list(range(FIRST, LAST, 2**64 // 48))])
@pytest.mark.parametrize("parts", [1, 2, 3, 7, 100])
def test_they_cover_the_ring_and_do_not_overlap(ring: list[int], parts: int) -> None:
    found = pieces(ring, parts)
    assert len(found) == parts
    assert (found[0][0], found[-1][1]) == (None, None)  # type: ignore[index]
    for left, right in pairwise(found):
        assert left[1] == right[0]  # type: ignore[index]
    cuts = [end for _, end in found[:-1]]  # type: ignore[misc]
    assert cuts == sorted(set(cuts))


def test_they_end_where_the_replicas_of_a_range_do() -> None:
    cuts = [end for _, end in pieces(NODES, 3)[:-1]]  # type: ignore[misc]
    assert cuts == NODES[1:]
    # No piece of twelve holds tokens of two nodes, but for the one around the ring's end.
    bounds = [FIRST, *(end for _, end in pieces(NODES, 12)[:-1]), LAST]  # type: ignore[misc]
    for low, high in pairwise(bounds):
        assert not [token for token in NODES[1:] if low < token < high]
