"""Shadow reads of a live run, made here: no gateway is needed for them."""

from __future__ import annotations

import threading
import uuid

import msgspec

from migrator.commands.project import Project
from migrator.commands.records import SHADOW_READS
from migrator.commands.started import frozen_plan, refuse_changed
from migrator.engine.settled import settler
from migrator.engine.shadow import Shadow, Shadowed
from migrator.errors import Interrupted, Refused, Waiting
from migrator.model.canonical import encode
from migrator.model.distinct import Distinct
from migrator.model.phase import Phase
from migrator.retry import Retry
from migrator.state import LiveState, Reads, Run, ShadowReads
from migrator.state.shadow import MOST_NAMED

# Who reads again and again here keeps one record of it.
_INSTANCE = uuid.uuid4().hex


class ShadowShare(msgspec.Struct, frozen=True, kw_only=True):
    """How large a share of their reads gateways make on both sides, from 0 to 1."""

    run: str
    revision: str
    share: float


def shadow_share(project: Project, revision: str, share: float) -> ShadowShare:
    """Have gateways make so large a share of their reads on both sides, from now on."""
    run = project.control.run(project.revision_id(revision))
    if not run.live or run.phase.ended:
        raise Refused(
            f"{run.revision} is {run.phase.words}, and no gateway compares it"
            if run.live
            else f"{run.revision} is moved at rest, and no gateway compares it",
            hint=f"see where it stands:  migrator status {run.revision}",
        )
    ShadowReads(project.control, run.id).keep_share(share)
    return ShadowShare(run=run.id, revision=run.revision, share=share)


def shadow(
    project: Project, revision: str, sample: int, *, stop: threading.Event | None = None
) -> list[Shadowed]:
    """Read about so many keys of each class on both sides, and note the result in the run's log.

    Raises Refused where there are no two sides to compare, Waiting without a mirror.
    """
    stop = stop or threading.Event()
    run = project.control.run(project.revision_id(revision))
    _refuse(project, run)
    routes = project.routes(run.revision, frozen_plan(run))

    def check() -> None:
        if stop.is_set():
            raise Interrupted("stopped; nothing was changed")

    check()
    retry = Retry(stop=stop)
    settle = settler(project.control, run.id, run, routes, stop)
    found = []
    kept = ShadowReads(project.control, run.id)
    for route in routes:
        aside = project.control.keys_aside(run.id, route.number)
        looking = Shadow(
            route, run.primary, settle, check, aside, retry, project.settings.explained
        )
        found.append(looking.look(sample))
        _keep(kept, run, looking, found[-1])
    for each in found:
        told = {name: n for name, n in msgspec.to_builtins(each).items() if type(n) is int}
        slow = {"primary_p99": each.primary_latency.p99, "mirror_p99": each.mirror_latency.p99}
        project.control.record(run.id, SHADOW_READS, cls=each.cls, **told, **slow)
    return found


def _keep(kept: ShadowReads, run: Run, looking: Shadow, found: Shadowed) -> None:
    """Keep what agreed and what differed, for the gate of a swap."""
    number = looking.route.number
    mine = (each for each in kept.found(number, run.epoch) if each.instance == _INSTANCE)
    agreed = next((each.agreed for each in mine), Distinct())
    for key in looking.agreed:
        agreed.add(encode(key))
    kept.keep(number, run.epoch, Reads(_INSTANCE, agreed=agreed, gateway=False))
    differ = [item for item in found.told if item.what in ("differs", "missing", "extra")]
    if differ:
        told = [msgspec.to_builtins(item) for item in differ[:MOST_NAMED]]
        kept.differed(found.cls, told, found.mismatch - len(told))


def _refuse(project: Project, run: Run) -> None:
    if not run.live:
        raise Refused(
            f"{run.revision} is moved at rest",
            hint=f"compare all of it:  migrator verify {run.revision}",
        )
    if run.phase.ended or run.phase.rank < Phase.BACKFILLED.rank:
        raise Refused(
            f"{run.revision} is {run.phase.words}: there are no two sides to compare",
            hint=f"see where it stands:  migrator status {run.revision}",
        )
    refuse_changed(project, run)
    if LiveState(project.control, run.id).told()[1].get("scanning"):
        raise Waiting(
            "the keys of both sides are compared anew, and may differ until that is done",
            hint=f"watch it:  migrator status {run.revision} --watch",
        )
