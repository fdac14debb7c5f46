"""Shadow reads: some keys read on both sides, compared, and timed.

    the primary -> the mirror -> what differs: the primary, settle, the mirror, the primary

Settling waits until the mirror holds what was written before. Where the primary held the same
before that and after the mirror was read, the mirror must hold it, too; where it did not,
somebody is writing the key and it is looked at again.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeAlias, cast

import msgspec

from migrator.engine.living import living
from migrator.engine.moving import Moving, reading
from migrator.engine.pairs import as_expected, paths_between
from migrator.engine.verification import MOST_TOLD, PATHS_TOLD, Mismatched
from migrator.errors import Interrupted, MigratorError
from migrator.model.block import Block
from migrator.model.canonical import encode, equal
from migrator.model.diff import block_differences, same_block
from migrator.model.explained import Explained, reasons
from migrator.model.rules import CorruptBlock
from migrator.model.value import Value
from migrator.ports import Observer
from migrator.retry import Retry
from migrator.route import NOT_MADE, Route
from migrator.state import quarantine_key

# How often a key is looked at that is written all the while, and how often it must differ.
LOOKS = 20
_TWICE = 2


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """How long one side took for a key, in seconds; null where it never answered."""

    median: float | None
    p99: float | None


class Shadowed(msgspec.Struct, kw_only=True):
    """Shadow reads of one class. ``keys`` are distinct: ``equal`` (of which ``absent`` on both
    sides), ``lagging`` (equal after the key had settled), ``moving`` (written at every look),
    ``explained`` (different only where the settings give a reason), ``mismatch``,
    ``quarantined``, and ``errors``, where a side could not be read. ``told`` names the keys and
    paths of what differs, and what could not be read."""

    cls: str
    primary: str
    mirror: str
    keys: int = 0
    equal: int = 0
    absent: int = 0
    lagging: int = 0
    moving: int = 0
    explained: int = 0
    mismatch: int = 0
    quarantined: int = 0
    errors: int = 0
    primary_latency: Latency = Latency(median=None, p99=None)
    mirror_latency: Latency = Latency(median=None, p99=None)
    told: list[Mismatched] = []

    @property
    def clean(self) -> bool:
        return not (self.mismatch or self.errors)


@dataclass
class _Reader:
    """One side, and how long each of its answers took."""

    side: str
    where: str
    observer: Observer
    times: list[float] = field(default_factory=list)

    def read(self, keys: Sequence[Value]) -> list[Block | None]:
        began = time.perf_counter()
        blocks = self.observer.read(keys)
        self.times.append(time.perf_counter() - began)
        return blocks

    def latency(self) -> Latency:
        return latency_of(self.times)


def latency_of(took: Iterable[float]) -> Latency:
    """The middle and the slow end of how long answers took."""
    times = sorted(took)
    if not times:
        return Latency(median=None, p99=None)
    last = times[math.ceil(0.99 * len(times)) - 1]
    return Latency(median=round(statistics.median(times), 6), p99=round(last, 6))


# What the mirror holds under the keys that one of the primary leads to.
Others: TypeAlias = Sequence[Block | None]
# What the primary holds, and the mirror.
Both: TypeAlias = tuple[Block | None, Others]
# What the target must hold, and what it holds.
Pair: TypeAlias = tuple[Block | None, Block | None]


class _Unread(Exception):
    """A side could not be read: neither equal nor different."""


class Shadow:
    """Reads keys of a move on both sides. ``settle`` waits until the mirror holds what was
    written until then, ``check`` raises where it is to stop. Writes nothing.

    A key is read once by each side and not again where that fails: what an application would
    have met is the result. ``agreed`` are the keys that were there and the same on both sides;
    ``found`` is the result, also of a look that was broken off.
    """

    def __init__(
        self,
        route: Route,
        primary: str,
        settle: Callable[[], None],
        check: Callable[[], None] = lambda: None,
        aside: frozenset[str] = frozenset(),
        retry: Retry | None = None,
        explained: Sequence[Explained] = (),
    ) -> None:
        self.route = route
        # They are the source's, and where keys change the target has the same ones for others.
        others = route.gathers or (route.changes_key and primary == "target")
        self.aside = frozenset() if others else aside
        self.agreed: list[Value] = []
        self.found: Shadowed | None = None
        self._explained = explained
        self._settle = settle
        self._retry = retry or Retry()
        self._check = check
        there = living(route.target.observer())
        self._groups: Moving | None = None
        if route.gathers:
            # A group is known by what is sampled of it, and by what the other side holds.
            self._groups = Moving(route, there, lambda: aside, self._retry, check, lists=False)
            here = cast("Observer", reading(route, self._groups))
        else:
            here = living(route.source.observer())
        source = _Reader("source", str(route.source_at), here)
        target = _Reader("target", str(route.move.target), there)
        self.primary, self.mirror = (source, target) if primary == "source" else (target, source)

    def look(self, sample: int) -> Shadowed:
        """Read about so many keys, from all over the primary."""
        route = self.route.followed
        collection = route.source if self.primary.side == "source" else route.target
        page = self._retry(collection.sample, sample)
        blocks = page.blocks[:sample]
        if self._groups is None:
            found = self.look_at([block.id for block in blocks])
        elif self.primary.side == "source":
            found = self.look_at(self._groups_of(self._groups, blocks))
        else:
            # What the mirror has beyond the elements of a group is seen by what is sampled there.
            parts = self._retry(route.source.sample, sample).blocks[:sample]
            found = self.look_at([b.id for b in blocks] + self._groups_of(self._groups, parts))
        self._unread(found, page.damaged)
        return found

    def _unread(self, found: Shadowed, damaged: Sequence[tuple[Value, str]]) -> None:
        """Count what the primary could not read of a sample, unless that is set aside."""
        for key, reason in damaged:
            found.keys += 1
            if self.aside and quarantine_key(key) in self.aside:
                found.quarantined += 1
                continue
            found.errors += 1
            why = f"{self.primary.where}: can't be read: {self.route.told(reason)}"
            self._tell(found, key, "error", [why])

    def _groups_of(self, groups: Moving, blocks: Sequence[Block]) -> list[Value]:
        """The keys that some blocks of the source are put together under."""
        found: list[Value] = []
        for block in blocks:
            with suppress(*NOT_MADE):
                (at,) = self.route.followed.leads_to(block)
                groups.learn([(at, block.id)])
                found.append(at)
        return found

    def look_at(self, keys: Sequence[Value]) -> Shadowed:
        """Read some keys, each once however often it is given."""
        found = self.found = Shadowed(
            cls=self.route.cls, primary=self.primary.where, mirror=self.mirror.where, told=[]
        )
        doubtful: list[Value] = []
        for key in {encode(key): key for key in keys}.values():
            self._check()
            found.keys += 1
            if self.aside and quarantine_key(key) in self.aside:
                found.quarantined += 1
                continue
            try:
                first, others = self._read(key)
            except _Unread as error:
                found.errors += 1
                self._tell(found, key, "error", [str(error)])
                continue
            if self._equal(first, others):
                found.equal += 1
                found.absent += first is None
                self._agree(key, first)
            else:
                doubtful.append(key)
        found.primary_latency = self.primary.latency()
        found.mirror_latency = self.mirror.latency()
        self._settled(found, doubtful)
        return found

    def _read(self, key: Value) -> Both:
        """Both sides, though one of them fails. Raises _Unread, for a failure on both as well."""
        sides: list[list[Block | None]] = []
        errors: list[str] = []
        for reader in (self.primary, self.mirror):
            try:
                keys = [key]
                if self.route.changes_key and reader is self.mirror:
                    keys = self._led_to(sides[0][0] if sides else None)
                sides.append(reader.read(keys) if keys else [])
            except Interrupted:
                raise
            except (MigratorError, CorruptBlock) as error:
                why, _ = self.route.why(error)
                errors.append(f"{reader.where}: " + why.partition("\n")[0])
        if errors:
            raise _Unread("; ".join(errors))
        return sides[0][0], sides[1]

    def _led_to(self, first: Block | None) -> list[Value]:
        """The keys of the mirror, where they come from what the primary holds; none where that is
        absent, or leads nowhere."""
        if first is None:
            return []
        try:
            if self.primary.side == "source":
                return [new.id for new in self.route.expected(first)]
            return self.route.sources(first)
        except NOT_MADE:
            return []

    # ------------------------------------------------------------------ what differed at first

    def _settled(self, found: Shadowed, keys: Sequence[Value]) -> None:
        """Tell what lags from what differs."""
        differed: dict[bytes, int] = {}
        waiting = list(keys)
        for _ in range(LOOKS):
            if not waiting:
                return
            waiting = self._again(found, waiting, differed)
        found.moving += len(waiting)

    def _again(
        self, found: Shadowed, keys: Sequence[Value], differed: dict[bytes, int]
    ) -> list[Value]:
        """One more look at some keys; those that it does not decide."""
        before: list[tuple[Value, Block | None]] = []
        for key in keys:
            self._check()
            try:
                before.append((key, self._read(key)[0]))
            except _Unread as error:
                found.errors += 1
                self._tell(found, key, "error", [str(error)])
        self._retry(self._settle)
        left: list[Value] = []
        for key, first in before:
            try:
                others = self._read(key)[1]
                last = self._read(key)[0]
            except _Unread as error:
                found.errors += 1
                self._tell(found, key, "error", [str(error)])
                continue
            if self._equal(first, others) or self._equal(last, others):
                found.lagging += 1
                self._agree(key, last)
                continue
            form = encode(key)
            if _still(first, last):
                differed[form] = differed.get(form, 0) + 1
            if differed.get(form, 0) < _TWICE:
                left.append(key)
                continue
            if (why := self._reasons(last, others)) is not None:
                found.explained += 1
                self._agree(key, last)
                self._tell(found, key, "explained", why)
                continue
            found.mismatch += 1
            there = any(other is not None for other in others)
            what = "differs" if there and last is not None else "extra" if there else "missing"
            self._tell(found, key, what, self._paths(last, others))
        return left

    def _agree(self, key: Value, there: Block | None) -> None:
        if there is not None:
            self.agreed.append(key)

    # ------------------------------------------------------------------ comparing

    def _sides(self, first: Block | None, others: Others) -> list[Pair]:
        """What the target must hold for what the source does, and what it holds.

        ``others`` may have been read where the primary held something else. Raises as
        ``Route.expected``.
        """
        route = self.route
        source = first
        if self.primary.side == "target":
            source = others[0] if others else None
        made = [] if source is None else route.expected(source)
        if self.primary.side == "target":
            if route.spreads:
                made = [new for new in made if first is not None and equal(new.id, first.id)]
            return [(made[0] if made else None, first)]
        if not route.changes_key:
            return [(made[0] if made else None, others[0])]
        held = {encode(block.id): block for block in others if block is not None}
        pairs: list[Pair] = [(new, held.pop(encode(new.id), None)) for new in made]
        return pairs + [(None, block) for block in held.values()]

    def _equal(self, first: Block | None, others: Others) -> bool:
        try:
            return all(self._are_equal(*pair) for pair in self._sides(first, others))
        except NOT_MADE:
            return False

    def _are_equal(self, wanted: Block | None, held: Block | None) -> bool:
        if wanted is None or held is None:
            return wanted is held
        return as_expected(wanted, held, self.route.ending)

    def _reasons(self, first: Block | None, others: Others) -> list[str] | None:
        """Why the sides differ, place by place, where somebody has declared it for all."""
        if not self._explained:
            return None
        paths: list[str] = []
        try:
            for wanted, held in self._sides(first, others):
                if wanted is None or held is None or not equal(wanted.id, held.id):
                    return None
                paths += [d.path for d in block_differences(wanted, held)]
        except NOT_MADE:
            return None
        why = reasons(self._explained, self.route.cls, paths) if paths else None
        return why and [f"{path}: {text}" for path, text in zip(paths, why, strict=True)]

    def _paths(self, first: Block | None, others: Others) -> list[str]:
        try:
            pairs = self._sides(first, others)
        except NOT_MADE as error:
            return [f"(whole): {self.route.why(error)[0]}"]
        paths: list[str] = []
        for wanted, held in pairs:
            if wanted is not None and held is not None:
                paths += paths_between(self.route, wanted, held)
            elif self.route.spreads and (alone := wanted or held) is not None:
                what = "missing" if held is None else "extra"
                paths.append(f"(whole): {self.route.name(alone.id)} is {what}")
        return paths

    def _tell(self, found: Shadowed, key: Value, what: str, paths: list[str]) -> None:
        if len(found.told) < MOST_TOLD:
            told = Mismatched(key=self.route.name(key), what=what, paths=paths[:PATHS_TOLD])
            found.told.append(told)


def _still(first: Block | None, last: Block | None) -> bool:
    """Whether nobody wrote the key between two looks."""
    if first is None or last is None:
        return first is last
    return same_block(first, last)


__all__ = ["Latency", "Shadow", "Shadowed", "latency_of"]
