"""Whether blocks that do not fit would fit, were they cut or laid out in another way."""

from __future__ import annotations

from collections.abc import Iterator

from migrator.errors import DoesNotFit, Refused
from migrator.model.block import Aggregate, Block, cut, join
from migrator.model.canonical import encode
from migrator.model.layouts import written
from migrator.model.move import At, Layout
from migrator.model.path import escape
from migrator.model.rules import CorruptBlock
from migrator.model.value import Record
from migrator.planning.tally import key_bytes
from migrator.ports import Collection, Roomier
from migrator.retry import Retry
from migrator.route import Route

# Each is cut and measured by each of the ways, so not all of very many are tried.
MOST_TRIED = 100
_LISTS = 2


class Elsewhere:
    """Tries other representations, and the layout for larger blocks, with those that do not fit.

    What is left are the ways that took every block tried, the plainest first.
    """

    def __init__(self, route: Route, retry: Retry) -> None:
        self._route = route
        self._retry = retry
        self._ways: list[Collection] | None = None
        self._tried = 0

    def add(self, block: Block) -> None:
        """Try a block that the target does not take."""
        if self._tried == MOST_TRIED or self._route.move.target.tables is not None:
            return
        try:
            aggregate = join(block)
        except CorruptBlock:
            return
        self._tried += 1
        if self._ways is None:
            self._ways = list(self._open(aggregate.value))
        self._ways = [way for way in self._ways if self._takes(way, aggregate)]

    def text(self) -> str:
        """What to tell of it; empty where no block was tried or no way is left."""
        if not self._ways:
            return ""
        many = "it" if self._tried == 1 else f"all {self._tried:,} that were tried"
        return f"of what does not fit, {many} would as  target={written(self._ways[0].at)}"

    def _open(self, value: Record) -> Iterator[Collection]:
        target, cls = self._route.move.target, self._route.cls
        layouts: list[Layout | None] = [target.layout]
        if isinstance(self._route.target, Roomier):
            layouts.append(self._route.target.roomier())
        now = tuple(target.rules(cls).texts)
        for rules in [now, *_representations(cls, value)]:
            for layout in layouts:
                if (rules, layout) == (now, target.layout):
                    continue
                at = At(target.store, target.collection, rules, layout)
                try:
                    yield self._route.target_store.collection(cls, at)
                except Refused:
                    continue  # its rules or options can't be had there

    def _takes(self, way: Collection, aggregate: Aggregate) -> bool:
        limits = self._route.target_store.capabilities.at(way.at.layout).limits
        try:
            size = self._retry(way.size, cut(aggregate, way.at.rules(way.cls)))
        except (DoesNotFit, Refused):
            return False
        taken = ((size, limits.block_bytes), (key_bytes(aggregate.id), limits.key_bytes))
        return all(limit is None or size <= limit for size, limit in taken)


def _representations(cls: str, value: Record) -> Iterator[tuple[str, ...]]:
    """Ways to cut a block: its largest lists by element first, every value by itself last."""
    lists = {name: len(encode(x)) for name, x in value.items() if type(x) is list and len(x) > 1}
    largest = sorted(lists, key=lambda name: -lists[name])[:_LISTS]
    rules = [f"/{cls}/*/{escape(name)}[*]" for name in largest]
    for many in range(len(rules)):
        yield (*rules[: many + 1], f"/{cls}/*")
    yield (*rules, f"/{cls}/*/*")
    yield (f"/{cls}/*/**",)
