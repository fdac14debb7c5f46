"""Reads that gateways have the mirror of a live run answer, before the sides are swapped."""

from __future__ import annotations

import msgspec

from migrator.commands.project import Project
from migrator.commands.records import GatewayAnswers, answers, status
from migrator.commands.started import frozen_plan
from migrator.errors import Refused, Waiting
from migrator.model.phase import Phase
from migrator.state import MirrorReads, Run, ShadowReads


class ReadShare(msgspec.Struct, frozen=True, kw_only=True):
    """How large a share of gateways' reads the mirror may answer, from 0 to 1, and by how many
    seconds an answer may be older than the primary. ``gateways``: what came of it since the sides
    were last swapped, null where no gateway has told yet."""

    run: str
    revision: str
    share: float
    stale: float
    gateways: GatewayAnswers | None = None


def reads(
    project: Project, revision: str, share: float | None = None, stale: float | None = None
) -> ReadShare:
    """How large a share of reads the mirror may answer; with ``share`` as large from now on, until
    somebody begins to swap the sides.

    Raises Refused where the mirror may answer none, Waiting where it may not now.
    """
    run = project.control.run(project.revision_id(revision))
    kept = MirrorReads(project.control, run.id)
    if not run.live:
        raise Refused(
            f"{run.revision} is moved at rest, and no mirror answers its reads",
            hint=f"plan it live:  migrator plan {run.revision} --live",
        )
    if share is not None:
        if share > 0:
            _refuse(project, run)
        kept.keep_share(run, share, kept.share().stale if stale is None else stale)
    found = kept.share()
    return ReadShare(
        run=run.id, revision=run.revision, share=found.of(run), stale=found.stale,
        gateways=answers(project, run),
    )  # fmt: skip


def _refuse(project: Project, run: Run) -> None:
    """Raise where an answer of the mirror might be wrong, or as old as nobody knows."""
    look = f"see where it stands:  migrator status {run.revision}"
    if run.phase is not Phase.SHADOW_READ:
        raise Refused(
            f"{run.revision} is {run.phase.words}: the mirror answers reads in shadow read alone",
            hint=look,
        )
    for route in project.routes(run.revision, frozen_plan(run)):
        if route.changes_key or route.gathers or route.spreads:
            raise Refused(
                f"{run.revision} changes the keys of {route.cls}: no gateway reads its mirror",
                where=route.cls,
                hint=f"compare what they read instead:  migrator shadow {run.revision} --share 5%",
            )
        if doubts := ShadowReads(project.control, run.id).doubts(route.cls):
            raise Refused(doubts, hint=f"compare all of it:  migrator verify {run.revision}")
    if run.fence:
        raise Waiting(f"a swap of the sides is not done ({run.fence})", hint=look)
    (stands,) = status(project, run.id)
    live = stands.live
    if live is None or not live.running:
        raise Waiting(
            "no mirror is running, so nobody knows how far it is behind",
            hint=f"start it:  migrator mirror {run.revision}",
        )
    if live.scanning:
        raise Waiting(
            "the keys of both sides are compared anew, and the mirror is as far behind as that is",
            hint=f"watch it:  migrator status {run.revision} --watch",
        )
