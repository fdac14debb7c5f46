"""Shadow reads of a live run, made here: no gateway is needed for them."""

from __future__ import annotations

import threading

import msgspec

from migrator.commands.project import Project
from migrator.commands.records import SHADOW_READS
from migrator.commands.started import frozen_plan, refuse_changed
from migrator.engine.settled import settler
from migrator.engine.shadow import Shadow, Shadowed
from migrator.errors import Interrupted, Refused, Waiting
from migrator.model.phase import Phase
from migrator.retry import Retry
from migrator.state import LiveState, Run


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
    for route in routes:
        aside = frozenset(
            item.key for item in project.control.quarantined(run.id) if item.move == route.number
        )
        found.append(Shadow(route, run.primary, settle, check, aside, retry).look(sample))
    for each in found:
        told = {name: n for name, n in msgspec.to_builtins(each).items() if type(n) is int}
        slow = {"primary_p99": each.primary_latency.p99, "mirror_p99": each.mirror_latency.p99}
        project.control.record(run.id, SHADOW_READS, cls=each.cls, **told, **slow)
    return found


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
