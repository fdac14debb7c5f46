"""What shadow reads found, as all who made some keep it, and how many gateways are to make."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

import sqlalchemy as sa

from migrator.model.distinct import Distinct
from migrator.state import tables as t
from migrator.state.control import Control
from migrator.state.merging import Rows

MOST_NAMED = 20
DIFFERED = "shadow reads differed"
"""The event of a run's log that names keys which differed in shadow reads."""


@dataclass(frozen=True)
class Reads:
    """What one process found of one class since the sides were last swapped. ``agreed`` are the
    keys that were there and the same; ``latency`` is of its last reads, in seconds."""

    instance: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    agreed: Distinct = field(default_factory=Distinct)
    latency: Mapping[str, float | None] = field(default_factory=dict)
    at: float = 0.0
    gateway: bool = True


class _Told(NamedTuple):
    """A key that differed: the number of the event that a shadow read told it by, 0 where the last
    comparison did, which is to look at it again; and where."""

    at: int
    paths: list[str]


class ShadowReads:
    """The part of the control database that tells of a run's shadow reads."""

    def __init__(self, control: Control, run: str) -> None:
        self._control = control
        self._run = run

    # ------------------------------------------------------------------ how many to make

    def share(self) -> float | None:
        """The share of their reads that gateways are to make on both sides, None for theirs."""
        query = sa.select(t.reads.c.shadow).where(t.reads.c.run == self._run)
        with self._control.transaction() as c:
            found = c.execute(query).scalar()
        return None if found is None else float(found)

    def keep_share(self, share: float) -> None:
        """Say how large that share is from now on."""
        with self._control.transaction() as c:
            t.keep(c, t.reads, {"run": self._run}, {"shadow": share})
        self._control.record(self._run, "shadow share", share=share)

    # ------------------------------------------------------------------ what was found

    def keep(self, move: int, epoch: int, reads: Reads, *, there: bool = False) -> bool:
        """Keep all that a process found so far; once more is the same as once. False where that had
        to be ``there`` already, and is added to what others found (see ``Part``)."""
        of = {"run": self._run, "move": move, "epoch": epoch}
        with self._control.transaction() as c:
            return _ROWS.keep(c, of, reads.instance, reads, there=there)

    def found(self, move: int, epoch: int) -> list[Reads]:
        """What each process found of a class since a swap, the last that wrote last."""
        s = t.shadow.c
        query = sa.select(s.instance, s.found, s.at).where(
            s.run == self._run, s.move == move, s.epoch == epoch
        )  # fmt: skip
        with self._control.transaction() as c:
            rows = c.execute(query.order_by(s.at)).all()
        return [_reads(name, json.loads(text), at) for name, text, at in rows]

    # ------------------------------------------------------------------ what differed

    def differed(self, cls: str, told: Sequence[Mapping[str, object]], more: int) -> None:
        """Note in the run's log keys that differed, and how many more did."""
        self._control.record(self._run, DIFFERED, cls=cls, told=list(told), more=more)

    def open(self) -> dict[str, dict[str, list[str]]]:
        """By class the keys, each with its paths where a read told them, that differed since all of
        the class was last compared and found equal, in that comparison or in shadow reads. Those
        without a name of their own are under one that says so.

        What a read told while all was compared counts: its key may have been compared before."""
        events = self._control.events
        both = [*events(self._run, "verified"), *events(self._run, DIFFERED)]
        both.sort(key=lambda event: cast("int", event["id"]))
        found: dict[str, dict[str, _Told]] = {}
        for event in both:
            at, detail = cast("int", event["id"]), cast("dict[str, object]", event["detail"])
            cls = str(detail["cls"])
            keys = found.setdefault(cls, {})
            if event["event"] == "verified":
                since = cast("int", detail.get("since", at))  # older versions noted none
                later = {key: told for key, told in keys.items() if told.at > since}
                found[cls] = later | {
                    key: _Told(0, keys[key].paths if key in keys else [])
                    for key in _unlike(detail)
                }  # fmt: skip
                continue
            for item in cast("list[dict[str, object]]", detail["told"]):
                keys[str(item["key"])] = _Told(at, cast("list[str]", item["paths"]))
            if more := detail["more"]:
                keys[f"{cls} ({more} more)"] = _Told(at, [])
        return {
            cls: {key: told.paths for key, told in keys.items()}
            for cls, keys in found.items() if keys
        }  # fmt: skip

    def doubts(self, cls: str) -> str:
        """Why the sides of a class are not known to hold the same; empty where they are: all of it
        was compared and equal, and nothing that was read differed since."""
        compared = [
            cast("dict[str, object]", event["detail"])
            for event in self._control.events(self._run, "verified")
        ]
        last = next((detail for detail in reversed(compared) if detail["cls"] == cls), None)
        if last is None or any(last[name] for name in ("differ", "missing", "extra")):
            return f"no comparison has found both sides of {cls} equal"
        if keys := self.open().get(cls):
            return f"shadow reads differed at {', '.join(sorted(keys)[:5])}"
        return ""


def _unlike(compared: Mapping[str, object]) -> list[str]:
    """The keys on which a comparison of all found both sides to differ."""
    count = sum(cast("int", compared[name]) for name in ("differ", "missing", "extra"))
    names = cast("list[str]", compared.get("keys", []))  # older versions named none
    more = count - len(names)
    return [*names, f"{compared['cls']} ({more} more)"] if more > 0 else names


def add_up(found: Sequence[Reads]) -> Reads:
    """What several processes found, together; latency is that of the last."""
    counts: dict[str, int] = {}
    agreed = Distinct()
    for each in found:
        agreed.add_all(each.agreed.hashes)
        for name, count in each.counts.items():
            counts[name] = counts.get(name, 0) + count
    last = found[-1] if found else Reads()
    return Reads("", counts, agreed, last.latency, last.at)


def _reads(instance: str, found: Mapping[str, object], at: float) -> Reads:
    return Reads(
        instance, cast("dict[str, int]", found["counts"]), Distinct.read(str(found["agreed"])),
        cast("dict[str, float | None]", found["latency"]), at, bool(found["gateway"]),
    )  # fmt: skip


def _told(reads: Reads) -> Mapping[str, object]:
    return {
        "counts": dict(reads.counts), "agreed": reads.agreed.text(),
        "latency": dict(reads.latency), "gateway": reads.gateway,
    }  # fmt: skip


_ROWS = Rows(
    t.shadow,
    _reads,
    _told,
    lambda some: replace(add_up(some), gateway=some[0].gateway),
    lambda reads: "gateways" if reads.gateway else "others",
    ("gateways", "others"),
)
