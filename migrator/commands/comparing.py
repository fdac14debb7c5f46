"""Both sides of a live run compared beside its mirror, which reconciles what is found to differ."""

from __future__ import annotations

import threading

import structlog

from migrator.commands.project import Project
from migrator.commands.started import frozen_plan
from migrator.engine.mending import WORK, Unlike, left
from migrator.engine.run import record_verified
from migrator.engine.settled import GONE, Heard, settler
from migrator.engine.verify import Verification, verify, verify_again
from migrator.engine.work import Nobody, Scene, Watcher
from migrator.errors import Interrupted, Waiting
from migrator.retry import Retry
from migrator.state import Lease, LiveState
from migrator.state.shadow import MOST_NAMED

_LOOK = 0.1

log = structlog.get_logger("migrator.verify")


def compare_live(
    project: Project, revision: str, watcher: Watcher | None, stop: threading.Event | None,
    workers: int, *, mend: bool,
) -> list[Verification]:  # fmt: skip
    """Compare both sides of a live run, whose mirror must be running; with ``mend`` have that
    reconcile what differs, and look at it again."""
    stop = stop or threading.Event()
    run = project.control.run(revision)
    with Lease(project.control, f"{project.settings.env}/{revision}") as lease:
        frozen = frozen_plan(run)
        routes = project.routes(revision, frozen)
        settle = settler(project.control, run.id, run, routes, stop)
        scene = Scene(
            run, frozen, routes, project.control, lease, workers,
            watcher or Nobody(), Retry(stop=stop, check=lease.check), stop, settle,
        )  # fmt: skip
        if mend:
            _wait(scene)  # for what an earlier one has left to it
        unlike = [Unlike() for _ in routes]
        pairs = list(zip(routes, unlike, strict=True))
        since = project.control.newest(run.id)
        found = [verify(scene, route, unlike=each) for route, each in pairs]
        record_verified(scene, found, since)
        if mend and not all(each.clean for each in found):
            _mend(scene, found, unlike)
            settle()
            found = [
                each if each.clean else verify_again(scene, route, each, differ)
                for route, each, differ in zip(routes, found, unlike, strict=True)
            ]
            record_verified(scene, found, since)
        return found


def _mend(scene: Scene, found: list[Verification], unlike: list[Unlike]) -> None:
    """Hand over what differs, and wait until the mirror has reconciled it."""
    control, run = scene.control, scene.run.id
    for route, each, differ in zip(scene.routes, found, unlike, strict=True):
        if each.clean:
            continue
        ranges = differ.ranges()
        # Told first: what is reconciled without a word in the log would be hard to explain.
        control.record(
            run, "to be reconciled", cls=each.cls, count=each.unlike, whole=differ.whole,
            keys=[told.key for told in each.told[:MOST_NAMED]],
        )  # fmt: skip
        control.plan_tasks(run, route.number, WORK, ranges)
        log.info("handed to the mirror", cls=each.cls, keys=each.unlike, whole=differ.whole)
    _wait(scene)


def _wait(scene: Scene) -> None:
    """Wait until the mirror has done all that was handed to it. Raises Waiting where none runs."""
    heard = Heard(LiveState(scene.control, scene.run.id))
    while any(left(scene.control, scene.run.id, len(scene.routes))):
        scene.check()
        silent, _ = heard.look()
        if silent > GONE:
            revision = scene.run.revision
            raise Waiting(
                "no mirror is running: what differs is reconciled as soon as one does",
                hint=f"start it:  migrator mirror {revision}; then compare again:  "
                f"migrator verify {revision}",
            )
        if scene.stop.wait(_LOOK):
            raise Interrupted("stopped looking; the mirror goes on")
