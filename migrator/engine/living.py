"""What has reached its deadline is absent, whether its server has removed it yet or not.

Some remove it minutes or days later (MongoDB, DynamoDB), others at once: read as it lies, a block
that ended on the way would be on one side and not on the other. Both are judged by one clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from migrator.model.block import Block, has_ended
from migrator.model.value import Value
from migrator.ports import Json, Matching, Observer, Page, Summing


def living(observer: Observer) -> Observer:
    """The same observer, with all that it offers, without blocks that have ended."""
    return _KINDS[isinstance(observer, Matching), isinstance(observer, Summing)](observer)


def _ended(block: Block) -> bool:
    return has_ended(block.expires, time.time())


def _alive(blocks: Iterable[Block | None]) -> list[Block | None]:
    return [None if block is not None and _ended(block) else block for block in blocks]


class _Living:
    """An observer that passes by what has ended."""

    def __init__(self, observer: Any) -> None:
        self._observer = observer

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        page: Page = self._observer.page(range_, position, limit)
        page.blocks = [block for block in page.blocks if not _ended(block)]
        return page

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        return _alive(self._observer.read(ids))


class _Matching(_Living):
    """The same for one that can match."""

    def match(self, expected: Sequence[Block]) -> list[Block | None]:
        return _alive(self._observer.match(expected))


class _Summing(_Living):
    """The same for one whose bytes can be added up: those of what has ended are in it, so that
    the sums differ, and blocks are looked at."""

    def form(self, expected: Block) -> bytes | None:
        made: bytes | None = self._observer.form(expected)
        return made

    def forms(self, range_: Json, position: Json, limit: int) -> tuple[list[bytes], Json]:
        found: tuple[list[bytes], Json] = self._observer.forms(range_, position, limit)
        return found


class _Both(_Matching, _Summing):
    """The same for one that can do both."""


_KINDS = {
    (False, False): _Living, (True, False): _Matching, (False, True): _Summing, (True, True): _Both,
}  # fmt: skip
