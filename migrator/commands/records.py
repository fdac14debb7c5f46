"""Where runs stand, and what was recorded of them."""

from __future__ import annotations

import time
from typing import cast

import msgspec

from migrator.commands.feeds import FeedStatus, feeds
from migrator.commands.followers import UnableHolder, unable
from migrator.commands.project import Project
from migrator.commands.started import frozen_plan
from migrator.engine import mending
from migrator.model.phase import Phase
from migrator.state import (
    Lease,
    LiveState,
    MirrorReads,
    Run,
    ShadowReads,
    add_up,
    all_answered,
    read_pace,
)
from migrator.state.gateways import Standing

# After so many seconds without a word no mirror is at work.
SILENT = 10.0
# The event of a run's log that tells what shadow reads found of a class.
SHADOW_READS = "shadow reads"


SHADOWED = ("equal", "lagging", "moving", "explained", "mismatch", "quarantined", "errors")
"""What can become of a shadow read."""


class ShadowStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What the last shadow reads of all classes found: of so many ``keys`` what, as in Shadowed.
    ``at`` is in seconds since 1970."""

    at: float
    keys: int
    equal: int
    lagging: int
    moving: int
    explained: int
    mismatch: int
    quarantined: int
    errors: int


class GatewayReads(msgspec.Struct, frozen=True, kw_only=True):
    """What gateways found by shadow reads since the sides were last swapped, all classes and
    processes together. ``share`` is what they were told to make, null for what their settings
    say. ``agreed``: how many different keys were there and the same on both sides; ``dropped``:
    reads for which there was no time, or no mirror to wait for. Latencies are in seconds, of the
    process that reported last."""

    at: float
    share: float | None
    reads: int
    agreed: int
    equal: int
    absent: int
    lagging: int
    moving: int
    explained: int
    mismatch: int
    quarantined: int
    errors: int
    dropped: int
    primary_median: float | None
    primary_p99: float | None
    mirror_median: float | None
    mirror_p99: float | None


class GatewayAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """What came of the reads that gateways' mirror may answer, since the sides were last swapped,
    all classes and processes together. ``share`` is how large a share of reads they are, 0 where
    it counts no more. ``served`` were answered by the mirror, all others by the primary:
    ``written`` keys that this gateway wrote, or gave newer than the mirror is known to be;
    ``behind``, where it is not known to hold what was written in time; ``lagging``, where it
    lacked the key, or held other content; ``absent`` on both sides; ``aside`` in quarantine;
    ``failed`` and ``slow`` where it did not answer, or not in time, and ``resting`` for a while
    after that; ``shape``, where it can't answer in the application's. Latencies are in seconds,
    of the process that reported last: ``mirror`` of served reads, ``primary`` of the others."""

    at: float
    share: float
    reads: int
    served: int
    absent: int
    written: int
    behind: int
    lagging: int
    aside: int
    failed: int
    slow: int
    resting: int
    shape: int
    primary_median: float | None
    primary_p99: float | None
    mirror_median: float | None
    mirror_p99: float | None


OUTCOMES = ("served", "absent", "written", "behind", "lagging", "aside", "failed", "slow",
            "resting", "shape")  # fmt: skip
"""What can become of a read that the mirror may answer."""


class LiveStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How the mirror of a live run is. ``running``: whether one is at work. ``silent``: for how
    many seconds it has said nothing, null where it never did. ``lag``: by how many seconds the
    mirror was behind then. ``ledger``: how many blocks could not be written back, so that a
    rollback would lose what was written. ``waits``: for what the mirror waits, a store and why, or
    the last requests of one that was killed; ``holders``: for whose leases a phase or a swap that
    was asked for waits, and how long at most; ``brackets``: how many writes of gateways have begun
    and not ended; ``feeds``: what the servers keep for it. ``differed``: the keys that differed
    when all was last compared, or in shadow reads since; ``unable``: who holds a lease and can't
    follow; ``mending``: what the mirror was given to reconcile, empty for nothing."""

    running: bool
    silent: float | None
    lag: float
    scanning: bool
    ledger: int
    fence: str
    shadow: ShadowStatus | None = None
    waits: str = ""
    holders: str = ""
    brackets: int = 0
    feeds: list[FeedStatus] = []
    gateways: GatewayReads | None = None
    differed: list[str] = []
    reads: GatewayAnswers | None = None
    unable: list[UnableHolder] = []
    mending: str = ""


class RunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where one run stands. ``primary`` and ``mirror``: where the two sides lie. ``changed``: when
    it got there, in seconds since 1970. ``paused`` and ``throttle`` (blocks a second, null for no
    bound) hold back the copying. ``stopped``: a move at rest keeps gateways from writing.
    ``ending``: a finish has begun to drop the source."""

    run: str
    revision: str
    classes: list[str]
    phase: str
    primary: str
    mirror: str
    changed: float
    epoch: int
    read: int
    planned: int
    quarantined: int
    next: str
    paused: bool = False
    throttle: float | None = None
    stopped: bool = False
    ending: bool = False
    live: LiveStatus | None = None


def status(project: Project, name: str | None = None) -> list[RunStatus]:
    """Where every run stands, oldest first; aborted ones are left out. With a ``name`` (a
    revision's or a run's own) that one alone. Raises Refused where there is none."""
    if name is not None:
        return [_status(project, project.control.run(name))]
    runs = [run for run in project.control.runs() if run.phase is not Phase.ABORTED]
    return [_status(project, run) for run in runs]


def _status(project: Project, run: Run) -> RunStatus:
    made, pace = frozen_plan(run), read_pace(project.control, run.id)
    ending = run.phase is Phase.CUT_OVER and bool(project.control.tasks(run.id, 0, "finish"))
    sides = [[str(getattr(m, side)) for m in made.moves] for side in ("source", "target")]
    primary, mirror = sides if run.primary == "source" else reversed(sides)
    tasks = [
        task
        for number in range(len(made.moves))
        for task in project.control.tasks(run.id, number, "backfill")
    ]
    return RunStatus(
        run=run.id,
        revision=run.revision,
        classes=[m.cls for m in made.moves],
        phase=run.phase.value,
        primary=", ".join(primary),
        mirror=", ".join(mirror),
        changed=run.changed,
        epoch=run.epoch,
        read=sum(task.counts.get("read", 0) for task in tasks),
        planned=sum(m.read for m in made.moves),
        quarantined=len(project.control.quarantined(run.id)),
        next=f"migrator finish {run.revision}" if ending else _next(run, stopping(project, run)),
        paused=pace.paused,
        throttle=pace.rate,
        stopped=_stopped(run),
        ending=ending,
        live=_live(project, run, len(made.moves)) if run.live and not run.phase.ended else None,
    )


def _stopped(run: Run) -> bool:
    stands = Standing(
        run.id, run.revision, run.phase, run.primary, run.epoch, run.attempt, run.fence, run.live
    )
    return stands.at_rest or (not run.live and stands.stopped)


def _live(project: Project, run: Run, classes: int) -> LiveStatus:
    state = LiveState(project.control, run.id)
    at, told = state.told()
    lag = cast("float", told.get("lag", 0.0))
    silent = round(max(0.0, time.time() - at), 1) if at else None
    running = is_running(project, run, silent)
    gone = None if running else silent
    return LiveStatus(
        running=running,
        silent=silent,
        lag=float(lag),
        waits=str(told.get("waits", "")) if running else "",
        holders=str(told.get("holders", "")) if running else "",
        brackets=cast("int", told.get("brackets", 0)),
        feeds=feeds(project, run, told, gone, lag),
        scanning=bool(told.get("scanning")),
        ledger=len(state.ledger()),
        fence=run.fence,
        shadow=_shadow(project, run, classes),
        gateways=_gateways(project, run, classes),
        differed=sorted(
            key for keys in ShadowReads(project.control, run.id).open().values() for key in keys
        ),
        reads=answers(project, run),
        unable=unable(project, run),
        mending=_mending(project, run, classes),
    )


def is_running(project: Project, run: Run, silent: float | None) -> bool:
    """Whether the mirror of a live run is at work: it was heard lately, and did not end."""
    if silent is None or silent > SILENT:
        return False
    return Lease.is_held(project.control, f"{project.settings.env}/{run.revision}/mirror")


def _mending(project: Project, run: Run, classes: int) -> str:
    """What is left to the mirror of what a comparison has named, in words."""
    tasks = [task for _, task in mending.left(project.control, run.id, classes)]
    if any(task.range is None for task in tasks):
        return "all keys of both sides"
    keys = sum(map(mending.count, tasks))
    return f"{keys:,} key{'s' * (keys != 1)}" if keys else ""


def answers(project: Project, run: Run) -> GatewayAnswers | None:
    """What came of the reads that the mirror may answer, None where there are none."""
    kept = MirrorReads(project.control, run.id)
    found, share = all_answered(kept.found(run.epoch)), kept.share().of(run)
    if not found.at and not share:
        return None
    given = {name: found.counts.get(name, 0) for name in OUTCOMES}
    none = dict.fromkeys(("primary_median", "primary_p99", "mirror_median", "mirror_p99"))
    return msgspec.convert(
        {**given, **none, **found.latency, "at": found.at, "share": share,
         "reads": sum(given.values())},
        GatewayAnswers,
    )  # fmt: skip


def _gateways(project: Project, run: Run, classes: int) -> GatewayReads | None:
    kept = ShadowReads(project.control, run.id)
    found = [
        each
        for number in range(classes)
        if (by := [r for r in kept.found(number, run.epoch) if r.gateway])
        for each in [add_up(by)]
    ]
    if not found:
        return None
    counts: dict[str, int] = {}
    for each in found:
        for name, count in each.counts.items():
            counts[name] = counts.get(name, 0) + count
    last = max(found, key=lambda each: each.at)
    names = ("reads", *SHADOWED, "absent", "dropped")
    given = {name: counts.get(name, 0) for name in names}
    return msgspec.convert(
        {
            **given, **last.latency, "at": last.at, "share": kept.share(),
            "agreed": sum(each.agreed.count for each in found),
        },
        GatewayReads,
    )  # fmt: skip


def _shadow(project: Project, run: Run, classes: int) -> ShadowStatus | None:
    found = project.control.events(run.id, SHADOW_READS, classes)
    if not found:
        return None
    names = ("keys", *SHADOWED)
    details = [cast("dict[str, int]", event["detail"]) for event in found]
    counts = {name: sum(detail[name] for detail in details) for name in names}
    return ShadowStatus(at=cast("float", found[-1]["at"]), **counts)


def stopping(project: Project, run: Run) -> str:
    """What a swap of the sides has to be given beside its revision, empty where that is nothing:
    the store of the primary can't stop its writes."""
    unfenced = LiveState(project.control, run.id).told()[1].get("unfenced")
    there = isinstance(unfenced, list) and run.primary in unfenced
    return " --hook COMMAND (or --gateways)" if there and run.live else ""


def _next(run: Run, stop: str) -> str:
    match run.phase:
        case Phase.CUT_OVER:
            return (
                f"migrator finish {run.revision}, or back: migrator rollback {run.revision}{stop}"
            )
        case Phase.FINISHED | Phase.ABORTED:
            return ""
        case Phase.SHADOW_READ if run.live:
            return (
                f"migrator cutover {run.revision}{stop}, or leave it: migrator abort {run.revision}"
            )
        case _:
            return f"migrator apply {run.revision}, or leave it: migrator abort {run.revision}"


def events(project: Project, name: str) -> list[dict[str, object]]:
    """The append-only log of a run."""
    return project.control.events(project.control.run(name).id)
