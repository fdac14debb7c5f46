"""What a live move does where its target held blocks before: what the source lacks has to go.

A page that is copied is compared with what lies under its keys, so what differs is written over by
the copy itself. What no page names is looked for once all are copied: then, where keys change, all
that lead to a key of the target are known.
"""

from __future__ import annotations

from dataclasses import replace

from migrator.engine.lane import Lane
from migrator.engine.points import reached
from migrator.engine.work import Scene
from migrator.route import extra_blocks

WORK = "delete"


def clear(scene: Scene, lane: Lane) -> bool:
    """Look at one page of a target that was not empty, and remove from it what the source lacks
    now; whether there was a page left. That it may was accepted with the plan (A133)."""
    route, planned = lane.route, scene.planned(lane.route)
    if planned.fresh:
        return False
    tasks = scene.tasks(route, WORK, lambda: scene.retry(route.target.split, 1))
    task = next((task for task in tasks if not task.done), None)
    if task is None:
        return False
    if not lane.throttle.ready():
        return True
    limit = lane.throttle.limit(planned.page)
    page = scene.retry(route.target.page, task.range, task.position, limit)
    extra = extra_blocks(route, page.blocks, scene.retry)
    # Both sides are read anew: a write may have come in between.
    done = lane.reconciler.untouched("source", [block.id for block in extra], "target")
    reached("delete.written")
    further = replace(
        task,
        position=page.next,
        done=page.next is None,
        counts={"delete": task.counts.get("delete", 0) + done.delete},
    )
    scene.retry(scene.control.checkpoint, scene.run.id, further)
    lane.throttle.copied(len(page.blocks))
    return True


__all__ = ["WORK", "clear"]
