"""A drill: traffic through the gateway, and the life of a live move beside it.

    before -> copy -> shadow read -> cut over -> roll back -> cut over -> check -> leave

Mirror and writers are killed on the way. Every key that is written is the drill's own.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from migrator import commands
from migrator.commands import Project, SwapTerms
from migrator.commands.started import taken_up
from migrator.drill import report, traffic
from migrator.drill.history import Fault, Key, Known, State
from migrator.drill.leftovers import (
    forget_parts,
    maker_of,
    names_of,
    number_file,
    part_file,
    remove_keys,
)
from migrator.drill.making import Shape, shape
from migrator.drill.page import page
from migrator.drill.processes import Killable, MirrorProcess, Writer
from migrator.drill.replay import Part, keep, share_out
from migrator.drill.sides import SIDES, held, left, try_out
from migrator.drill.terms import KILLS, DrillTerms
from migrator.drill.timeline import TimeLine
from migrator.engine.verify import Verification
from migrator.errors import Failed, Interrupted, MigratorError, Refused, Transient, Waiting
from migrator.gateway import Gateway
from migrator.gateway import Terms as GatewayTerms
from migrator.model.block import join
from migrator.model.phase import Phase
from migrator.model.plan import Plan
from migrator.retry import Retry
from migrator.route import Route
from migrator.state import Lease, LiveState, Run

SAMPLES = 50
TRIES = 5
BUCKETS = 120
_PATIENCE = 5.0


@dataclass
class _Found:
    """What a drill has come to know, and what kept it from going on."""

    faults: list[Fault] = field(default_factory=list)
    verified: list[Verification] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    stopped: bool = False

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Note what fails in the block instead of raising it."""
        try:
            yield
        except Interrupted:
            self.stopped = True
            self.problems.append("it was stopped before its end")
        except MigratorError as error:
            self.problems.append(f"{error.where}: {error.what}" if error.where else error.what)


class Drill:
    """One rehearsal of a live plan. ``told`` hears of each step as it begins."""

    def __init__(
        self,
        project: Project,
        made: Plan,
        terms: DrillTerms | None = None,
        *,
        told: Callable[[str], None] = lambda stage: None,
        stop: threading.Event | None = None,
    ) -> None:
        self._project = project
        self._made = made
        self._terms = terms or DrillTerms()
        self._stop = stop or threading.Event()
        self._seed = secrets.randbelow(2**31) if self._terms.seed is None else self._terms.seed
        self._chosen = random.Random(self._seed)  # noqa: S311
        self._number = secrets.randbelow(2**31)
        self._shapes: list[Shape] = []
        self._parts: list[Part] = []
        self._line = TimeLine(told)
        refuse_outside_staging(project)

    @property
    def folder(self) -> Path:
        """Where reports and histories lie."""
        return self._project.settings.root / "drills"

    def run(self) -> report.Report:
        """Carry the drill out, and write its report.

        Raises Refused before anything is done; what fails on the way is part of the report.
        """
        self._refuse()
        self._forget_recorded()
        self._shapes = self._make_shapes()
        runs = self._project.control.runs(self._made.revision)
        remove_keys(self.folder, runs, self._ways())
        self._share_out()
        self._try_out()
        run = self._begin()
        here = self.folder / run.id
        here.mkdir(parents=True)
        number_file(here).write_text(str(self._number))
        started = time.time()
        self._line.began = time.monotonic()
        live = LiveState(self._project.control, run.id)
        mirror = MirrorProcess(
            run.revision, self._project.settings.file, self._project.settings.env,
            here / "mirror.log", lambda: live.told()[0],
        )  # fmt: skip
        writers = [Writer(self._orders(here, number)) for number in range(self._writers)]
        found = _Found()
        try:
            with self._line.watching(live):
                self._go_through(run, mirror, writers, found)
                known = traffic.known(here)
                with found.noting(), self._line.stage("check"):
                    self._check(run, known, found)
                left = self._leave(run, known, found)
            if not left:
                number_file(here).unlink()
            mirror.stop(patience=_PATIENCE)
        finally:
            mirror.stop()
            forget_parts(here)
        made = self._report(run, started, known, found, left)
        self._write(made)
        if found.stopped:
            raise Interrupted(
                "the drill was stopped before its end",
                hint=f"see what is left:  migrator status {run.revision}",
            )
        return made

    # ------------------------------------------------------------------ before

    def _make_shapes(self) -> list[Shape]:
        shapes = []
        for route in self._routes():
            blocks = Retry()(route.source.sample, SAMPLES).blocks
            make = maker_of(self._number, route.cls)
            shapes.append(shape(route.cls, [join(block) for block in blocks], make))
        return shapes

    def _routes(self) -> list[Route]:
        return self._project.routes(self._made.revision, self._made)

    def _ways(self) -> list[tuple[Route, Shape]]:
        return list(zip(self._routes(), self._shapes, strict=True))

    @property
    def _writers(self) -> int:
        return len(self._parts) or self._terms.writers

    def _share_out(self) -> None:
        """Give each writer its part of the recording. Raises Refused."""
        terms = self._terms
        if terms.replay is not None:
            # What was recorded of other classes asks for no calls, and takes no time.
            recording = terms.replay.of([each.cls for each in self._shapes])
            self._terms = replace(terms, replay=recording)
            self._parts = share_out(recording, terms.writers, terms.speed)

    def _try_out(self) -> None:
        """See that keys are free and values can be written. Raises Refused."""
        keys = [part.keys for part in self._parts] or [self._terms.keys] * self._writers
        names = [f"{w}.{n}.0" for w, number in enumerate(keys) for n in range(number)]
        for route, each in self._ways():
            if held(route, "source", each, names):
                raise Refused("keys of the drill are taken; try again", where=route.cls)
            with self._gateway(route.cls) as gateway:
                try_out(gateway, each, f"{self._writers}.0.0")

    def _refuse(self) -> None:
        """Raise Refused where this plan can't be drilled now."""
        project, made = self._project, self._made
        if not made.live:
            raise Refused(
                "this plan moves at rest, and a drill is for live moves",
                hint=f"plan it live:  migrator plan {made.revision} --live",
            )
        for route in self._routes():
            if route.spreads or route.gathers:
                what = (
                    f"it spreads each block of {route.move.source_cls} over several"
                    if route.spreads
                    else f"it puts blocks of {route.move.source_cls} together"
                )
                raise Refused(
                    f"{what}, and no gateway follows that, by which a drill writes",
                    where=route.cls,
                    hint="rehearse it with the application itself, in staging",
                )
            if route.changes_key and not route.translation.key_alone:
                raise Refused(
                    "its keys follow what aggregates hold, and a drill's writers know those of "
                    "one side alone",
                    where=route.cls,
                    hint="rehearse it with the application itself, in staging",
                )
        if (run := commands.unfinished(project, made.revision)) is not None:
            raise self._refused(run)
        commands.check_plan(project, made, self._terms.apply)

    def _refused(self, run: Run) -> Refused:
        back = (
            f"migrator rollback {run.revision} --gateways, then  "
            if run.primary == "target"
            else ""
        )
        what, hint = "", f"leave that one first:  {back}migrator abort {run.revision}"
        if (self.folder / run.id).exists():
            what = " of another drill"
            hint = (
                f"wait for its end; where it was killed, {hint}; the next drill of "
                f"{run.revision} removes the keys that it left"
            )
        return Refused(f"run {run.id}{what} is under way, and a drill begins its own", hint=hint)

    def _forget_recorded(self) -> None:
        """Remove what drills that were killed have left of recordings."""
        for run in self._project.control.runs():
            if run.phase.ended:
                forget_parts(self.folder / run.id)

    def _begin(self) -> Run:
        project, revision = self._project, self._made.revision
        with Lease(project.control, f"{project.settings.env}/{revision}"):
            return taken_up(project, revision, self._made, self._terms.apply)

    def _orders(self, here: Path, number: int) -> traffic.Orders:
        terms, settings = self._terms, self._project.settings
        file = None
        if self._parts:
            keep(self._parts[number], file := part_file(here, number))
        return traffic.Orders(
            settings.file, settings.env, self._made.revision, here, number, tuple(self._shapes),
            terms.mix, terms.keys, terms.writers / terms.rate, terms.skew, self._seed,
            GatewayTerms(lease=terms.lease), file,
        )  # fmt: skip

    def _gateway(self, cls: str) -> Gateway:
        settings = self._project.settings
        return Gateway.open(
            cls, settings.file, settings.env, revision=self._made.revision, shape="source",
            terms=GatewayTerms(lease=self._terms.lease),
        )  # fmt: skip

    # ------------------------------------------------------------------ the life of the move

    def _go_through(
        self, run: Run, mirror: MirrorProcess, writers: list[Writer], found: _Found
    ) -> None:
        """The life of the move, until all writers have ended."""
        try:
            with found.noting():
                self._live(run, mirror, writers)
        finally:
            for writer in writers:
                with suppress(Failed):
                    writer.stop()
        if found.stopped:
            self._stop = threading.Event()  # what has to be put in order goes on

    def _live(self, run: Run, mirror: MirrorProcess, writers: list[Writer]) -> None:
        """From the first write to the last."""
        with self._line.stage("start"):
            mirror.start()
            for writer in writers:
                writer.start()
            mirror.wait()
            for writer in writers:
                writer.wait()
        writer = self._chosen.choice(writers)
        victims: dict[str, Killable] = {
            stage: mirror if what == "mirror" else writer
            for stage, what in KILLS[: self._terms.kills]
        }
        self._traffic("before", writers, victims)
        with self._line.stage("copy"), self._line.killing(victims.get("copy"), self._at_once()):
            apply = self._terms.apply
            commands.apply(
                self._project, self._made, until=Phase.SHADOW_READ, terms=apply, stop=self._stop
            )
        self._traffic("shadow read", writers, victims)
        self._swap("cut over", run, Phase.CUT_OVER)
        self._traffic("target is primary", writers, victims)
        self._swap("roll back", run, Phase.SHADOW_READ, victims.get("roll back"))
        self._traffic("source is primary", writers, victims)
        self._swap("cut over again", run, Phase.CUT_OVER)
        self._traffic("target is primary again", writers, victims)
        with self._line.stage("stop"):
            for writer in writers:
                writer.stop()

    def _at_once(self) -> float:
        return self._chosen.uniform(0.0, 0.3)

    def _traffic(self, name: str, writers: list[Writer], victims: Mapping[str, Killable]) -> None:
        """Let the writers work; in the middle of it something may be killed."""
        seconds = self._terms.between
        after = seconds * self._chosen.uniform(0.2, 0.5)
        with self._line.stage(name), self._line.killing(victims.get(name), after):
            if self._stop.wait(seconds):
                raise Interrupted("stopped")
        for writer in writers:
            writer.check()

    def _swap(self, name: str, run: Run, to: Phase, victim: Killable | None = None) -> None:
        """Swap the sides. What was undone, also by a mirror that was killed, is tried again."""
        with self._line.stage(name) as stage, self._line.killing(victim, self._at_once()):
            while True:
                try:
                    done = self._ask(run, to)
                except (Waiting, Transient):
                    if self._project.control.run(run.id).phase is to:
                        return
                    if stage.tries == TRIES:
                        raise
                    stage.tries += 1
                else:
                    stage.stopped = done.swap.pause if done.swap else None
                    return

    def _ask(self, run: Run, to: Phase) -> commands.Applied:
        swap: SwapTerms = self._terms.apply.swap
        if not swap.hook:  # what a drill writes goes by gateways
            swap = msgspec.structs.replace(swap, gateways=True)
        call = commands.cutover if to is Phase.CUT_OVER else commands.rollback
        return call(self._project, run.revision, swap=swap, stop=self._stop)

    # ------------------------------------------------------------------ after

    def _check(self, run: Run, known: Known, found: _Found) -> None:
        """What both sides hold, against what was acknowledged; of a drill that did not come so far
        the primary alone."""
        found.faults += known.faults
        primary = self._project.control.run(run.id).primary
        if not found.problems and not found.stopped:
            found.verified += commands.verify_run(self._project, run.revision, stop=self._stop)
        for side in SIDES if found.verified else (primary,):
            there: dict[Key, State | None] = {}
            for route, each in self._ways():
                there.update(held(route, side, each, names_of(known, route.cls)))
            found.faults += known.check("primary" if side == primary else "mirror", there)

    def _leave(self, run: Run, known: Known, found: _Found) -> int:
        """Remove the keys of the drill and end the run; how many keys are left."""
        project = self._project
        with found.noting(), self._line.stage("clear"):
            for each in self._shapes:
                with self._gateway(each.cls) as gateway:
                    for name in names_of(known, each.cls):
                        gateway.delete(each.maker.id(name))
        with found.noting():
            phase = project.control.run(run.id).phase
            finish = self._terms.finish and phase is Phase.CUT_OVER and not found.stopped
            if phase is Phase.CUT_OVER and not finish:
                self._swap("roll back at the end", run, Phase.SHADOW_READ)
            with self._line.stage("leave"):
                if finish:
                    commands.finish(project, run.revision, keep_source=True)
                else:
                    fresh = all(move.fresh for move in self._made.moves)
                    commands.abort(project, run.revision, drop_target=fresh)
        ended = project.control.run(run.id).phase.ended
        return sum(
            left(route, side, each, names_of(known, route.cls), remove=ended)
            for route, each in self._ways()
            for side in SIDES
        )

    def _report(
        self, run: Run, started: float, known: Known, found: _Found, left: int
    ) -> report.Report:
        terms, line, seconds = self._terms, self._line, self._line.now()
        wanted = terms.wanted(any(each.items for each in self._shapes))
        counts = report.count(known, wanted, self._reigns())
        faults = found.faults
        why = report.reasons(counts, faults, found.verified, left, found.problems)
        for stage in line.stages:
            if stage.name.startswith(("cut over", "roll back")):
                began, ended = line.began + stage.began, line.began + stage.ended
                stage.pause = round(known.longest(began, ended)[0], 6) or None
        bucket = max(0.25, round(seconds / BUCKETS, 2))
        return report.Report(
            run=run.id, revision=run.revision, env=run.env,
            classes=[each.cls for each in self._shapes],
            ending=self._project.control.run(run.id).phase.value,
            began=started, seconds=seconds, passed=not why, reasons=why,
            asked=self._asked(),
            stages=line.stages, kills=line.kills, done=counts, keys=len(known.certain),
            left=left, longest=round(known.longest(0.0, line.began + seconds)[0], 6),
            bucket=bucket,
            throughput=report.throughput(known, line.began, seconds, bucket), lag=line.lag,
            refused=dict(known.reasons.most_common(20)), faults=faults[: report.MOST_FAULTS],
            more_faults=max(0, len(faults) - report.MOST_FAULTS), verified=found.verified,
            replay=self._replayed(known),
        )  # fmt: skip

    def _asked(self) -> report.Asked:
        terms, recording = self._terms, self._terms.replay
        if recording is None:
            return report.Asked(
                writers=terms.writers, rate=terms.rate, keys=terms.keys, skew=terms.skew,
                mix={act.value: part for act, part in terms.mix.items()},
                seconds=terms.between, seed=self._seed,
            )  # fmt: skip
        rate = terms.speed * len(recording.lines) / (recording.seconds or 1.0)
        return report.Asked(
            writers=self._writers, rate=round(rate, 3), keys=len(recording.keys), skew=None,
            mix={act.value: float(number) for act, number in recording.acts.items()},
            seconds=terms.between, seed=self._seed,
        )  # fmt: skip

    def _replayed(self, known: Known) -> report.Replay | None:
        recording = self._terms.replay
        if recording is None:
            return None
        return report.Replay(
            files=list(recording.files), lines=len(recording.lines), keys=len(recording.keys),
            seconds=round(recording.seconds, 6), speed=self._terms.speed, values=recording.values,
            replayed=known.replayed, made=known.made,
            left_out=dict((recording.left_out + known.left_out).most_common(20)),
        )  # fmt: skip

    def _reigns(self) -> list[tuple[float, float]]:
        """From when to when the target was the primary, by the clock of the histories."""
        return [
            (self._line.began + stage.began, self._line.began + stage.ended)
            for stage in self._line.stages
            if stage.name in ("target is primary", "target is primary again")
        ]

    def _write(self, made: report.Report) -> None:
        text = msgspec.json.format(msgspec.json.encode(made, enc_hook=str), indent=1)
        (self.folder / f"{made.run}.json").write_bytes(text + b"\n")
        (self.folder / f"{made.run}.html").write_text(page(made), encoding="utf-8")


def refuse_outside_staging(project: Project) -> None:
    """Raise Refused where the settings do not say that an environment is there to be rehearsed
    in."""
    settings = project.settings
    if not settings.staging:
        raise Refused(
            f"environment {settings.env} is not there for drills: a drill writes, kills and swaps",
            where=settings.file.name,
            hint=f"if it may, say so there:  [env.{settings.env}]  staging = true",
        )
