"""The ends of a move and the way back from one: what forbids them, and what they drop."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from migrator.engine.points import reached
from migrator.engine.work import Scene
from migrator.errors import Refused
from migrator.journal import OTHER
from migrator.model.phase import Phase
from migrator.route import is_empty
from migrator.state import Control, Run

_NAMED = 5


def aborted(*, drop_target: bool, leaving: str = "") -> dict[str, str]:
    """What is noted of an abort in the run's log: what became of the target."""
    return {"target": "dropped" if drop_target else "left as it is" if leaving else "kept"}


def finished(*, keep_source: bool) -> dict[str, str]:
    """What is noted of a finish in the run's log: what became of the source."""
    return {"source": "kept" if keep_source else "dropped"}


def ended(control: Control, run: Run) -> tuple[Refused, int | None]:
    """That a run is over already and how, for who wants to end it; and the number of the request
    that ended it, None where that is not noted."""
    noted = control.events(run.id, run.phase.value, last=1)
    detail = cast("dict[str, object]", noted[0]["detail"]) if noted else {}
    how = next((f": the {side} was {detail[side]}" for side in OTHER if side in detail), "")
    number = detail.get("request")
    over = Refused(f"{run.revision} is {run.phase.words} already{how}")
    return over, number if isinstance(number, int) else None


def refuse_no_way_back(control: Control, run: Run) -> None:
    """Raise Refused where there is no cut-over to take back, or its source is being dropped."""
    if run.phase is not Phase.CUT_OVER:
        raise Refused(
            f"{run.revision} is {run.phase.words}: there is no cut-over to take back",
            hint=""
            if run.phase.ended
            else f"leave the move instead: migrator abort {run.revision}",
        )
    _refuse_finishing(control, run)


def _refuse_finishing(control: Control, run: Run) -> None:
    if control.tasks(run.id, 0, "finish"):
        raise Refused(
            "a finish has begun to drop the source: there is no way back",
            hint=f"end it:  migrator finish {run.revision}",
        )


def refuse_not_cut_over(run: Run) -> None:
    """Raise Refused where a move can't be finished yet."""
    if run.phase is not Phase.CUT_OVER:
        raise Refused(
            f"{run.revision} is {run.phase.words}, not cut over",
            hint="" if run.phase.ended else f"bring it there: migrator apply {run.revision}",
        )


def refuse_abort(scene: Scene, *, drop_target: bool) -> None:
    """Raise Refused where a move can't be left, or its target not be dropped."""
    run = scene.run
    if run.phase.ended:
        raise ended(scene.control, run)[0]
    refuse_only_copy(scene.control, run)
    begun = run.phase is not Phase.PLANNED
    for route in scene.routes if drop_target else ():
        ours = begun or is_empty(route.target, scene.retry)
        if not (ours and scene.planned(route).fresh):
            raise Refused(
                f"{route.move.target} held blocks before this run", hint="keep it: --keep-target"
            )


def refuse_only_copy(control: Control, run: Run) -> None:
    """Raise Refused where the target is the primary: a move is not left then."""
    if run.primary != "source":
        _refuse_finishing(control, run)
        raise Refused(
            "the target holds the only primary copy",
            hint=f"roll back first: migrator rollback {run.revision}",
        )


def refuse_left_out(scene: Scene, given_up: Collection[str]) -> None:
    """Raise Refused where blocks lie on the source alone, and would go with it unnamed: a cut-over
    left them out, and said that a rollback finds them there."""
    if scene.control.tasks(scene.run.id, 0, "finish"):
        return  # it was asked for before, and has begun
    left = sorted({item.shown for item in scene.control.quarantined(scene.run.id)} - {*given_up})
    if left:
        more = "" if len(left) <= _NAMED else f" and {len(left) - _NAMED} more"
        revision = scene.plan.revision
        raise Refused(
            f"{len(left)} blocks in quarantine lie nowhere else, and would be lost: "
            f"{', '.join(left[:_NAMED])}{more}",
            hint=f"keep the source:  migrator finish {revision} --keep-source; or give each up by "
            "name: --accept-key KEY",
        )


def drop_copies(scene: Scene, *, drop_target: bool, leaving: str = "") -> None:
    """Drop what an abort leaves without a use: the archives, and the targets where asked to.
    Nothing in the target's store where that is left as it is."""
    if drop_target:
        for route in scene.routes:
            scene.retry(route.target.drop)
        reached("abort.dropped")
    if scene.run.phase is not Phase.PLANNED:
        for route in scene.routes:
            if route.archive is None:
                continue
            if not (leaving and route.archive.at.store == route.move.target.store):
                scene.retry(route.archive.collection.drop)


def drop_sources(scene: Scene) -> None:
    """Drop the sources. That is durable before the first is dropped, so that a rollback does not
    take what is left of them for the whole."""
    scene.control.plan_tasks(scene.run.id, 0, "finish", [None])
    for route in scene.routes:
        scene.retry(route.source.drop)
    reached("finish.dropped")
