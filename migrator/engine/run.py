"""START HERE: the phases of a run, top to bottom, for a source at rest.

    planned -> prepared -> dual_write -> backfilled -> shadow_read <-> cut_over -> finished

At rest nothing writes the source, so ``dual_write`` has nothing to attach and ``shadow_read``
is the full verification. A phase is persisted by a compare-and-set; what leads to it can be
done again from the start of that step, or from its checkpoints, at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import structlog

from migrator.engine import backfill as copy
from migrator.engine.carry_back import carry_back as carry
from migrator.engine.ending import (
    aborted,
    drop_copies,
    drop_sources,
    finished,
    refuse_abort,
    refuse_left_out,
    refuse_no_way_back,
    refuse_not_cut_over,
)
from migrator.engine.points import reached
from migrator.engine.stilled import go_on, stilled
from migrator.engine.verify import Verification, verify
from migrator.engine.work import Scene
from migrator.errors import Mismatch, Refused, Waiting
from migrator.journal import Numbering
from migrator.model.phase import Phase
from migrator.model.plan import Plan
from migrator.retry import Retry
from migrator.route import Route, is_empty
from migrator.state import Run, highest_number
from migrator.state.shadow import MOST_NAMED

log = structlog.get_logger("migrator.run")


class Engine:
    """Takes one run from phase to phase. Every method can be repeated after a crash."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.verified: list[Verification] = []

    @property
    def run(self) -> Run:
        return self.scene.run

    def apply(self, until: Phase, accepted_keys: Collection[str] = (), why: str = "") -> Run:
        """Go on to a phase, at most to ``cut_over``; ``why`` keys are accepted is for the record.

        Raises Mismatch where the sides differ, Waiting for keys in quarantine that nobody
        accepted, Interrupted where it was stopped.
        """
        reached("run.started")
        go_on(self.scene)
        steps: dict[Phase, Callable[[], None]] = {
            Phase.PREPARED: self.prepare,
            Phase.DUAL_WRITE: self.dual_write,
            Phase.BACKFILLED: self.backfill,
            Phase.SHADOW_READ: self.verify,
            Phase.CUT_OVER: lambda: self.cut_over(accepted_keys, why),
        }
        for phase, step in steps.items():
            if self.run.phase.rank < phase.rank <= until.rank:
                self.scene.check()
                step()
        return self.run

    def _reach(self, phase: Phase, *, primary: str | None = None, **detail: object) -> None:
        self.scene.run = self.scene.control.advance(
            self.run, phase, primary=primary, fence="", **detail
        )
        log.info("phase", run=self.run.id, phase=phase.value, primary=self.run.primary)
        self.scene.watcher.phase(self.run)

    # ------------------------------------------------------------------ forward

    def prepare(self) -> None:
        """Create what the targets need.

        Raises Refused where a target that was empty has been filled since: what is not known
        to be there would be written over.
        """
        refuse_filled(self.scene.plan, self.scene.routes, self.scene.retry)
        for route in self.scene.routes:
            self.scene.retry(route.target.create)
            if route.archive is not None:
                self.scene.retry(route.archive.collection.create)
            reached("prepare.created")
        self._reach(Phase.PREPARED)

    def dual_write(self) -> None:
        """At rest there is no write to mirror; gateways write no more once this is reached."""
        with stilled(self.scene):
            self._reach(Phase.DUAL_WRITE)

    def backfill(self) -> None:
        """Copy every collection and hold the counts against the plan's."""
        for route in self.scene.routes:
            done = copy.backfill(self.scene, route)
            self.scene.control.record(self.run.id, "copied", cls=route.cls, **done)
            self._compare_counts(route, done)
            self.scene.retry(route.target.settle)
        self._reach(Phase.BACKFILLED)

    def _compare_counts(self, route: Route, done: dict[str, int]) -> None:
        aside = done["quarantined"] + done["archived"]
        accounted = done["create"] + done["change"] + done["leave"] + aside
        expected = done["read"] + done["spread"]
        if accounted != expected:
            raise Mismatch(
                f"{done['read']:,} blocks were read, of which {expected:,} were to be made; "
                f"{accounted:,} are accounted for",
                where=f"{route.source_at} -> {route.move.target}",
                hint="don't cut over; keep the control database and report this",
            )
        planned = self.scene.planned(route)
        names = ("create", "change", "leave", "delete")
        wanted = {name: getattr(planned, name) for name in names}
        if planned.archive is not None:
            wanted |= {"archived": planned.archive.blocks, "parts": planned.archive.parts}
        differ = {n: (count, done[n]) for n, count in wanted.items() if count != done[n]}
        if differ and planned.exact and not done["quarantined"]:
            told = ", ".join(f"{n} {p:,} planned, {d:,} done" for n, (p, d) in differ.items())
            log.warning("source changed since the plan", cls=route.cls, counts=told)
            self.scene.control.record(self.run.id, "not as planned", cls=route.cls, counts=told)

    def verify(self) -> None:
        """Compare both sides; only equal sides go on. Raises Mismatch."""
        # After a rollback the sides may have changed since they were last compared.
        resume = self.run.phase is Phase.BACKFILLED
        self.verified = [verify(self.scene, route, resume=resume) for route in self.scene.routes]
        record_verified(self.scene, self.verified)
        revision = self.scene.plan.revision
        again = f"\nthey were equal before; to copy anew:  migrator abort {revision}, then plan"
        refuse_unequal(self.verified, revision, "" if resume else again)
        if self.run.phase is Phase.BACKFILLED:
            self._reach(Phase.SHADOW_READ)

    def cut_over(self, accepted_keys: Collection[str] = (), why: str = "") -> None:
        """Make the target the primary.

        Raises Waiting for quarantined keys that were not accepted by name, and Mismatch where
        the run was rolled back before and the sides have drifted apart since.
        """
        items = self.scene.control.quarantined(self.run.id)
        aside = {q.shown: q.reason for q in items}
        unaccepted = sorted(set(aside) - set(accepted_keys))
        if unaccepted:
            more = "" if len(unaccepted) <= 5 else f" and {len(unaccepted) - 5} more"
            raise Waiting(
                f"{len(unaccepted)} blocks are in quarantine: {', '.join(unaccepted[:5])}{more}",
                hint="mend them and run: migrator quarantine retry "
                f"{self.scene.plan.revision}; or accept each by name: --accept-key KEY",
            )
        if aside:
            keys, reasons = sorted(aside), sorted(set(aside.values()))
            self.scene.control.record_accepted(
                self.run.id, "accepted keys", why, keys=keys, found=reasons
            )
        with stilled(self.scene):
            if not self.verified:
                self.verify()
            for route in self.scene.routes:
                self.scene.retry(route.target.settle)
                if isinstance(route.target, Numbering) and not route.changes_key:
                    # None that is given takes the place of a block that was left out (C50).
                    past = highest_number(items, route.number)
                    self.scene.retry(route.target.number_on, past)
            reached("cut_over.settled")
            self._reach(Phase.CUT_OVER, primary="target")
        reached("cut_over.flipped")

    # ------------------------------------------------------------------ back, and out

    def rollback(self, *, carry_back: bool = False, discard: bool = False) -> list[Verification]:
        """Make the source the primary again.

        Blocks written to the target since the cut-over are found by a verification. They are
        carried back to the source, or given up, only where asked to. Raises Refused otherwise.
        """
        refuse_no_way_back(self.scene.control, self.run)
        with stilled(self.scene):
            found = self._way_back(carry_back=carry_back, discard=discard)
            self._reach(Phase.SHADOW_READ, primary="source")
        reached("rollback.flipped")
        return found

    def _way_back(self, *, carry_back: bool, discard: bool) -> list[Verification]:
        """Compare, and carry back or give up what was written since. Raises Refused."""
        found = [verify(self.scene, route) for route in self.scene.routes]
        changed = sum(f.differ + f.missing + f.extra for f in found)
        if changed and carry_back:
            # Parts go back into their wholes, so the wholes must be there first.
            for route in sorted(self.scene.routes, key=lambda route: route.spreads):
                carried = carry(self.scene, route)
                self.scene.control.record(self.run.id, "carried back", cls=route.cls, **carried)
            found = [verify(self.scene, route) for route in self.scene.routes]
            refuse_unequal(found, self.scene.plan.revision)
        elif changed and not discard:
            keys = ", ".join(told.key for f in found for told in f.told[:5])
            raise Refused(
                f"{changed:,} blocks were written since the cut-over ({keys}"
                f"{' ...' if changed > 5 else ''}): going back would lose them",
                hint="copy them back first: --carry-back; or give them up: --discard",
            )
        if changed and discard:
            self.scene.control.record(self.run.id, "discarded", blocks=changed)
        return found

    def abort(self, *, drop_target: bool, leaving: str = "") -> None:
        """Leave the move; the source stays the primary. ``leaving``: a side whose store is asked
        for nothing."""
        refuse_abort(self.scene, drop_target=drop_target)
        drop_copies(self.scene, drop_target=drop_target, leaving=leaving)
        self._reach(Phase.ABORTED, **aborted(drop_target=drop_target, leaving=leaving))

    def finish(self, *, keep_source: bool, given_up: Collection[str] = ()) -> None:
        """End the move for good; the only destructive step, unless the source is kept.
        ``given_up`` are the blocks that lie on the source alone, by name."""
        refuse_not_cut_over(self.run)
        if not keep_source:
            refuse_left_out(self.scene, given_up)
            for route in self.scene.routes:
                self._refuse_grown(route)
            drop_sources(self.scene)
        self._reach(Phase.FINISHED, **finished(keep_source=keep_source))

    def _refuse_grown(self, route: Route) -> None:
        """Raise Refused where the source holds more blocks than the cut-over has seen.

        Somebody still writes to the old primary: a drop would lose it. Without a feed a changed
        block can't be told, a new one can.
        """
        seen = None
        for event in self.scene.control.events(self.run.id):
            detail = event["detail"]
            if event["event"] == "verified" and detail["cls"] == route.cls:  # type: ignore[index]
                seen = detail.get("read")  # type: ignore[attr-defined]
        if seen is None or not self.scene.retry(route.source.exists):
            return
        count = self.scene.retry(route.source_blocks)
        if count > seen:
            raise Refused(
                f"it holds {count:,} blocks, {count - seen:,} more than at the cut-over: somebody "
                "still writes there",
                where=str(route.source_at),
                hint=f"keep it:  migrator finish {self.scene.plan.revision} --keep-source",
            )


def record_verified(
    scene: Scene, verified: Sequence[Verification], since: int | None = None
) -> None:
    """Keep in the run's record what a comparison of its moves found; of a live one ``since`` is the
    event of the run's log after which it began."""
    began = {} if since is None else {"since": since}
    for found in verified:
        scene.control.record(
            scene.run.id, "verified", cls=found.cls, equal=found.equal, differ=found.differ,
            missing=found.missing, extra=found.extra, quarantined=found.quarantined,
            archived=found.archived, parts=found.parts, read=found.read,
            keys=[each.key for each in found.told[:MOST_NAMED]], **began,
        )  # fmt: skip


def refuse_filled(plan: Plan, routes: Sequence[Route], retry: Retry) -> None:
    """Raise Refused where a target that the plan found empty holds blocks now."""
    for route in routes:
        if plan.moves[route.number].fresh and not is_empty(route.target, retry):
            raise Refused(
                "it was empty when this plan was made, and holds blocks now",
                where=str(route.move.target),
                hint=f"make a new plan:  migrator plan {plan.revision}",
            )
        if route.archive is not None and not is_empty(route.archive.collection, retry):
            raise Refused(
                "an archive must be empty before a run, and it holds blocks now",
                where=str(route.archive.at),
                hint=f"empty it, or name another place, and plan again:  migrator plan "
                f"{plan.revision}",
            )


def refuse_unequal(found: Sequence[Verification], revision: str, more: str = "") -> None:
    """Raise Mismatch where a verification is not clean, naming keys and paths."""
    for each in found:
        if each.clean:
            continue
        told = each.told[0] if each.told else None
        example = f"; {told.key} {told.what}" if told else ""
        if told and told.paths:
            example += f" at {told.paths[0]}"
        raise Mismatch(
            f"{each.differ:,} blocks differ, {each.missing:,} are missing, {each.extra:,} are "
            f"extra{example}",
            where=f"{each.source} / {each.target}",
            hint=f"see all of them: migrator verify {revision} --format json{more}",
        )


__all__ = ["Engine", "refuse_filled", "refuse_unequal"]
