"""Who holds a lease on the classes of a live run and can't follow it."""

from __future__ import annotations

import msgspec

from migrator.commands.project import Project
from migrator.commands.started import frozen_plan
from migrator.engine.followers import Followers
from migrator.errors import MigratorError
from migrator.model.phase import Phase
from migrator.state import Run
from migrator.state.gateways import Gateways


class UnableHolder(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a lease and can't follow: from ``phase`` on it would refuse its application's
    calls, so that phase is not reached until it can, or is stopped. ``host``, ``pid`` and
    ``version`` (of Migrator) are empty, or 0, where it did not say; ``lacks`` is what is in the
    way, and ``hint`` what to do."""

    instance: str
    cls: str
    host: str
    pid: int
    version: str
    phase: str
    lacks: str
    hint: str


def unable(project: Project, run: Run) -> list[UnableHolder]:
    """Who holds a lease on a class of a live run and can't follow it, now or at its next step;
    a process that ended without a word is among them until its lease is outwaited."""
    gateways = Gateways(project.control)
    try:
        moves = project.moves(run.revision)
        if not gateways.leases({cls for move in moves for cls in (move.cls, move.source_cls)}):
            return []  # no store need be opened
        routes = project.routes(run.revision, frozen_plan(run))
    except MigratorError:
        return []  # the script is another by now: whoever goes on is told of that
    followers = Followers(gateways, run.revision, routes)
    after = Phase.SHADOW_READ if run.phase is Phase.CUT_OVER else Phase.DUAL_WRITE
    found: dict[str, UnableHolder] = {}
    for phase in (after, Phase.CUT_OVER):
        for each in followers.unable(phase):
            lease = each.lease
            if not lease.gone and lease.instance not in found:
                found[lease.instance] = UnableHolder(
                    instance=lease.instance, cls=lease.cls, host=lease.host, pid=lease.pid,
                    version=lease.release, phase=phase.value, lacks=each.lack.what,
                    hint=each.lack.hint,
                )  # fmt: skip
    return list(found.values())
