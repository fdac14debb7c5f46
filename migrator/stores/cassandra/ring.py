"""The token ring in pieces: ranges (from, to] that end where a replica's own ranges do."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise

from migrator.ports import Collection, Json, Page, one_page

FIRST, LAST = -(2**63), 2**63 - 1


def pieces(ring: Sequence[int], parts: int) -> list[Json]:
    """About ``parts`` ranges that cover all tokens, the outer bounds open.

    ``ring`` are the tokens of the nodes, ascending: what lies between two of them has the same
    replicas, so a bound is moved to one of them where one is near.
    """
    parts = max(1, parts)
    step = 2**64 // parts
    cuts: list[int] = []
    for i in range(1, parts):
        even = FIRST + i * step
        near = _nearest(ring, even)
        cuts.append(even if near is None or abs(near - even) > step // 4 else near)
    bounds = [None, *sorted(set(cuts)), None]
    return [list(pair) for pair in pairwise(bounds)]


def sample(collection: Collection, size: int, parts: int) -> Page:
    """About ``size`` blocks from ``parts`` ranges all over the ring."""
    ranges = collection.split(min(size, parts)) if size > 0 else []
    pages: list[Page] = []
    met = 0
    for left, range_ in zip(range(len(ranges), 0, -1), ranges, strict=True):
        share = -(-(size - met) // left)
        if share > 0:
            pages.append(collection.page(range_, None, share))
            met += pages[-1].met
    if met < size and ranges:
        return collection.page(None, None, size)
    return one_page(pages, size)


def _nearest(ring: Sequence[int], token: int) -> int | None:
    at = bisect_left(ring, token)
    return min(ring[max(0, at - 1) : at + 1], key=lambda t: abs(t - token), default=None)
