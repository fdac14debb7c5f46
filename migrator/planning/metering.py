"""What a move takes of sides whose servers count units of capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from migrator.grouping import Gathered
from migrator.model.block import Block
from migrator.model.plan import Capacity, Side
from migrator.planning.tally import Issues
from migrator.ports import Metered, Rates, Units
from migrator.retry import Retry
from migrator.route import Route

# A read unit is for so many bytes.
_READ_BYTES = 4096
# Beyond so long, bounded capacity is worth a warning.
LONG_SECONDS = 3600.0


class Metering:
    """Adds up units while a survey goes over the blocks."""

    def __init__(self, route: Route, retry: Retry) -> None:
        self._route = route
        self._retry = retry
        source = route.source
        self._behind = source.behind if isinstance(source, Gathered) else [source]
        self._sources = [each for each in self._behind if isinstance(each, Metered)]
        archive = None if route.archive is None else route.archive.collection
        self._target = route.target if isinstance(route.target, Metered) else None
        self._archive = archive if isinstance(archive, Metered) else None
        self._rates: dict[Side, Rates] = {
            "source": _least([retry(each.rates) for each in self._sources]),
            "target": Rates() if self._target is None else retry(self._target.rates),
            "archive": Rates() if self._archive is None else retry(self._archive.rates),
        }
        self._read_before = self._consumed()
        # By the identity of blocks, which a page holds.
        self._fresh: dict[int, Units] = {}
        self.copied = Units()
        self.archived = Units()

    def _consumed(self) -> tuple[int, int]:
        source = max((each.consumed() for each in self._sources), default=0)
        return source, 0 if self._target is None else self._target.consumed()

    def begin_page(self) -> None:
        """Other blocks come."""
        self._fresh.clear()

    def size(self, block: Block) -> int:
        """As ``Collection.size`` of the target; what the block takes is kept for this page."""
        if self._target is None:
            return self._retry(self._route.target.size, block)
        size, self._fresh[id(block)] = self._retry(self._target.measure, block)
        return size

    def create(self, block: Block) -> None:
        """A block that was measured is to be made."""
        self.copied = _sum(self.copied, self._fresh.get(id(block), Units()))

    def leave(self, block: Block) -> None:
        """A block that was measured lies there already."""
        read = self._fresh.get(id(block), Units()).read
        self.copied = _sum(self.copied, Units(read=read))

    def change(self, new: Block | None, old: Block) -> None:
        """A block is to be changed, or removed."""
        if self._target is not None:
            self.copied = _sum(self.copied, self._retry(self._target.units, new, old))

    def add_archived(self, block: Block) -> None:
        """A block that goes into the archive."""
        if self._archive is not None:
            self.archived = _sum(self.archived, self._retry(self._archive.units, block, None))

    def extrapolate(self, share: float) -> None:
        """From a sample to all blocks."""
        self.copied, self.archived = _times(self.copied, share), _times(self.archived, share)

    def result(self, size: int, *, fresh: bool) -> list[Capacity]:
        """What it comes to, by side; ``size`` are the bytes that the target then holds."""
        source, target = self._consumed()
        found = []
        if self._sources:
            scan = sum(self._retry(each.scan_units) for each in self._sources)
            read, verify = scan, scan
            if self._route.gathers:
                # What belongs together is listed first, and by the verifier for either side; then
                # it is read by its keys, a unit for each block at least.
                blocks = sum(self._retry(each.statistics).blocks for each in self._behind)
                by_key = max(scan, blocks)
                read, verify = scan + by_key, 2 * scan + by_key
            found.append(self._side("source", source - self._read_before[0], 0, read, verify))
        if self._target is not None:
            copied = self.copied
            surveyed = 0 if self._shared() else target - self._read_before[1]
            scan = -(-size // _READ_BYTES)
            # What lies there already is read by its key, and all keys are listed.
            look = copied.look if fresh else copied.look + copied.read + scan
            verify = copied.read + scan
            found.append(self._side("target", surveyed, copied.write, look, verify))
        if self._archive is not None:
            kept = self.archived
            found.append(self._side("archive", 0, kept.write, kept.look, 2 * kept.read))
        return found

    def _shared(self) -> bool:
        """Whether both sides are of one store, which counts what is read there in one."""
        return self._route.source_at.store == self._route.move.target.store

    def _side(self, side: Side, survey: int, write: int, read: int, verify: int) -> Capacity:
        rates = self._rates[side]
        return Capacity(
            side=side, survey=survey, write=write, read=read, verify=verify,
            write_rate=rates.write, read_rate=rates.read,
        )  # fmt: skip


def _sum(one: Units, other: Units) -> Units:
    return Units(one.write + other.write, one.look + other.look, one.read + other.read)


def _times(units: Units, share: float) -> Units:
    return Units(round(units.write * share), round(units.look * share), round(units.read * share))


def _least(rates: Sequence[Rates]) -> Rates:
    """Of several collections that are read one after another, the slowest."""
    return Rates(min((r.read for r in rates if r.read is not None), default=None))


def tell_of_long(capacity: Sequence[Capacity], places: Mapping[Side, str], issues: Issues) -> None:
    """Findings for what the declared capacity makes take long."""
    for each in capacity:
        for word, units, rate in (
            ("write", each.write, each.write_rate),
            ("read", each.read + each.verify, each.read_rate),
        ):
            seconds = units / rate if rate else 0.0
            if seconds > LONG_SECONDS:
                issues.add(
                    "warning", "W122",
                    f"{places[each.side]}: {units:,} {word} units, at {rate:,.0f} a second, take "
                    f"{seconds / 3600:,.1f} hours: allow more for the time of the move",
                )  # fmt: skip
