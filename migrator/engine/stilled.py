"""The gateways of applications, as a move at rest stops them before it reads what they write.

A gateway looks at the run every few seconds. So that a run has begun, or was taken back, is not
enough: what a gateway writes before it has seen that would be in no copy and no comparison.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import structlog

from migrator.errors import MigratorError, Waiting
from migrator.state import LiveState
from migrator.state.gateways import Gateways, has_acknowledged, wait_for

if TYPE_CHECKING:
    from migrator.engine.work import Scene

log = structlog.get_logger("migrator.run")

# A lease as long as a gateway's in quiet phases, and what it takes to see that it ran out.
_PATIENCE = 40.0
_PAUSE = 0.02


@contextmanager
def stilled(scene: Scene) -> Iterator[None]:
    """Within it no gateway writes the classes of a run, and nothing of theirs is under way.

    Reaching a phase within it lets them go on as that phase has it. Raises Waiting, with nothing
    stopped any more, where one does not stop in time.
    """
    live = LiveState(scene.control, scene.run.id)
    try:
        scene.run = live.raise_fence(live.arm(scene.run))
        _wait(scene)
        yield
    except BaseException:
        with suppress(MigratorError):
            go_on(scene)
        raise


def go_on(scene: Scene) -> None:
    """Let gateways go on where somebody stopped them who did not come to an end."""
    if scene.run.fence:
        scene.run = LiveState(scene.control, scene.run.id).release(scene.run)


def _wait(scene: Scene) -> None:
    gateways = Gateways(scene.control)
    classes = {c for r in scene.routes for c in (r.cls, r.move.source_cls)}
    classes |= {r.move.merges.of for r in scene.routes if r.move.merges is not None}
    waiting, lapsed = wait_for(
        gateways, sorted(classes), has_acknowledged(scene.run), check=lambda _: scene.check(),
        pause=_PAUSE,
        # One whose last request had no answer says so once that can't be alive any more (R6).
        until=time.monotonic() + _PATIENCE + scene.request_life,
    )  # fmt: skip
    if waiting:
        more = f" and {len(waiting) - 3} more" if len(waiting) > 3 else ""
        raise Waiting(
            f"did not stop writing: {'; '.join(each.told for each in waiting[:3])}{more}",
            hint="see that these applications reach the control database, or stop them",
        )
    if not lapsed:
        return
    for lease in lapsed:
        log.warning("gateway ran out", instance=lease.instance, cls=lease.cls)
    until = time.monotonic() + scene.request_life  # what they sent last may be alive until then
    while time.monotonic() < until:
        scene.check()
        time.sleep(_PAUSE)
    # Only now: one that is stopped meanwhile, and begun again, has nothing else that tells of them.
    gateways.forget(lapsed)
