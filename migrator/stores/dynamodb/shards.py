"""Which shards of a stream are read, and up to where: parents before children, none left out.

A *spot* is a place in one shard; the *front* is the spots of all shards that are in hand. A shard
whose end was read stays in the front until the service lists what follows it. Whatever is listed
and neither in the front, nor before it, nor behind it, was never seen, and is read from its start.
Pure: what was listed and read comes from outside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from migrator.ports import Json

KEPT = 23 * 3600.0
"""Seconds for which a record is sure to be kept: the service says a day."""
AHEAD = 1800.0
"""Seconds by which a place may be of a later time than now; less than what ``KEPT`` leaves of a
day. Of one beyond, which a clock told that was set back since, nobody knows how old it is."""


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard as it is listed; a closed one gets no more records."""

    id: str
    parent: str | None = None
    closed: bool = False

    @classmethod
    def of(cls, listed: Mapping[str, Any]) -> Shard:
        """From DescribeStream's own words."""
        closed = listed.get("SequenceNumberRange", {}).get("EndingSequenceNumber") is not None
        return cls(str(listed["ShardId"]), listed.get("ParentShardId") or None, closed)


@dataclass(frozen=True, slots=True)
class Spot:
    """Behind the record of a sequence number; at the start of the shard where there is none.

    ``ended``: the end of the shard was read. What was written before ``time``, in seconds since
    1970, has been read: where that is long ago, what follows may be gone.
    """

    after: str = ""
    ended: bool = False
    time: float = 0.0

    def is_kept(self, now: float) -> bool:
        """Whether what follows is sure to be there still."""
        return -AHEAD <= now - self.time <= KEPT

    def json(self) -> Json:
        return [self.after, self.ended, int(self.time)]

    @classmethod
    def of(cls, told: Any) -> Spot:
        after, ended, time = told
        return cls(str(after), bool(ended), float(time))


Front = Mapping[str, Spot]


class Gone(Exception):
    """Records that were not read are gone, for the reason given."""


def at_start(listed: Mapping[str, Shard], now: float) -> dict[str, Spot]:
    """The front of a stream that is read from where it begins."""
    return {s.id: Spot(time=now) for s in listed.values() if s.parent not in listed}


def at_end(listed: Mapping[str, Shard], now: float) -> dict[str, Spot]:
    """The front of a stream of which only what comes is read: the shards that nothing follows.

    A spot that has not ended is where its shard ends now, which the caller has to find out.
    """
    followed = {s.parent for s in listed.values()}
    leaves = (s for s in listed.values() if s.id not in followed)
    return {s.id: Spot(ended=s.closed, time=now) for s in leaves}


def move_on(front: Front, listed: Mapping[str, Shard], now: float) -> dict[str, Spot]:
    """The front once a listing is known. Raises Gone."""
    below: dict[str, list[str]] = {}
    for shard in listed.values():
        if shard.parent is not None:
            below.setdefault(shard.parent, []).append(shard.id)
    found: dict[str, Spot] = {}
    for id, spot in front.items():
        after = below.get(id, []) if spot.ended else []
        if after:
            found |= {child: Spot(time=spot.time) for child in after if child not in front}
        elif id in listed:
            # Nothing follows it until now, so nothing that does can be old.
            found[id] = replace(spot, time=now) if spot.ended else spot
        elif not spot.ended or not spot.is_kept(now):
            raise Gone(f"the shard {id} is no longer there")
    passed = {above for id in (*found, *front) for above in _above(id, listed)} - found.keys()
    for id in _unseen(found, passed, listed):
        parent = listed[id].parent
        if parent is not None and parent not in listed and parent not in passed:
            raise Gone(f"the shard {parent} went before it was read")
        found[id] = Spot(time=now)
    return found


def _unseen(front: Front, passed: set[str], listed: Mapping[str, Shard]) -> Iterable[str]:
    """Shards that are neither in the front, nor before it, nor behind it; the first of each line.

    ``passed`` are those before it.
    """
    for id in listed:
        above = list(_above(id, listed))
        if id in front or id in passed or any(each in front for each in above):
            continue
        if all(each in passed or each not in listed for each in above):
            yield id


def _above(id: str, listed: Mapping[str, Shard]) -> Iterable[str]:
    """The ancestors of a shard, the nearest first, also the one that is no longer listed."""
    seen = {id}
    while (shard := listed.get(id)) is not None and shard.parent is not None:
        if shard.parent in seen:
            return
        yield shard.parent
        seen.add(id := shard.parent)
