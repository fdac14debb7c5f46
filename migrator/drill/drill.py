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
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from migrator import commands
from migrator.commands import Project, SwapTerms
from migrator.commands.started import taken_up
from migrator.drill import report, traffic
from migrator.drill.history import Act, Fault, Key, Known, State
from migrator.drill.making import Maker, Shape, maker, shape
from migrator.drill.page import page
from migrator.drill.processes import Killable, MirrorProcess, Writer
from migrator.engine.verify import Verification
from migrator.errors import Failed, Interrupted, MigratorError, Refused, Transient, Waiting
from migrator.gateway import Gateway
from migrator.gateway import Terms as GatewayTerms
from migrator.gateway.opened import Sides
from migrator.model.block import Address, join
from migrator.model.phase import Phase
from migrator.model.plan import Plan
from migrator.model.value import Value
from migrator.retry import Retry
from migrator.route import Route
from migrator.state import Lease, LiveState, Run

SAMPLES = 50
TRIES = 5
BUCKETS = 120
_BATCH = 100
_LOOK = 0.25
# What is killed in which stage, in the order of what it is worth.
KILLS = (
    ("roll back", "mirror"),
    ("shadow read", "writer"),
    ("copy", "mirror"),
    ("source is primary", "writer"),
    ("target is primary", "mirror"),
)
MIX = {Act.PUT: 2.0, Act.UPDATE: 3.0, Act.APPEND: 3.0, Act.DELETE: 1.0, Act.GET: 3.0}


@dataclass(frozen=True)
class DrillTerms:
    """What is rehearsed. ``rate``: calls a second of all writers; ``keys``: of each writer;
    ``seconds``: of traffic between two steps; ``minimum``: calls of each kind that have to be
    acknowledged; ``kills``: how many of KILLS; ``lease``: of a gateway in quiet phases, in seconds.
    """

    writers: int = 2
    rate: float = 50.0
    keys: int = 20
    mix: Mapping[Act, float] = field(default_factory=lambda: dict(MIX))
    skew: float = 1.0
    seconds: float = 5.0
    minimum: int = 20
    seed: int | None = None
    kills: int = len(KILLS)
    finish: bool = False
    lease: float = 5.0
    apply: commands.Terms = field(default_factory=commands.Terms)


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
        self._told = told
        self._stop = stop or threading.Event()
        self._seed = secrets.randbelow(2**31) if self._terms.seed is None else self._terms.seed
        self._chosen = random.Random(self._seed)  # noqa: S311
        self._number = secrets.randbelow(2**31)
        self._shapes: list[Shape] = []
        self._stages: list[report.Stage] = []
        self._kills: list[report.Kill] = []
        self._lag: list[tuple[float, float]] = []
        self._began = 0.0
        refuse_outside_staging(project)

    @property
    def folder(self) -> Path:
        """Where reports and histories lie."""
        return self._project.settings.root / "drills"

    def run(self) -> report.Report:
        """Carry the drill out, and write its report.

        Raises Refused before anything is done; what fails on the way is part of the report.
        """
        self._shapes = self._make_shapes()
        self._try_out()
        run = self._begin()
        here = self.folder / run.id
        here.mkdir(parents=True)
        started = time.time()
        self._began = time.monotonic()
        problem, faults, verified = "", list[Fault](), list[Verification]()
        live = LiveState(self._project.control, run.id)
        mirror = MirrorProcess(
            run.revision, self._project.settings.file, self._project.settings.env,
            here / "mirror.log", lambda: live.told()[0],
        )  # fmt: skip
        writers = [Writer(self._orders(here, number)) for number in range(self._terms.writers)]
        stopped: Interrupted | None = None
        try:
            with self._watching(live):
                self._live(run, mirror, writers)
                with self._stage("check"):
                    known = traffic.known(here)
                    verified = commands.verify_run(self._project, run.revision, stop=self._stop)
                    faults = self._check(run, known)
        except Interrupted as error:
            stopped = error
        except MigratorError as error:
            problem = f"{error.where}: {error.what}" if error.where else error.what
        except BaseException:
            mirror.stop()
            raise
        finally:
            for writer in writers:
                with suppress(Failed):
                    writer.stop()
        known = traffic.known(here)
        left = len(known.certain)
        try:
            with self._stage("leave"):
                left = self._leave(run, mirror, known)
        except MigratorError as error:
            problem = "; ".join(filter(None, [problem, f"it was not left: {error.what}"]))
        finally:
            mirror.stop(patience=5.0 if left == 0 else 0.0)
        if stopped is not None:
            raise Interrupted(
                "the drill was stopped before its end" + (f"; {problem}" if problem else ""),
                hint=f"see what is left:  migrator status {run.revision}",
            )
        made = self._report(run, started, known, faults, verified, left, problem)
        self._write(made)
        return made

    # ------------------------------------------------------------------ before

    def _make_shapes(self) -> list[Shape]:
        shapes = []
        for route in self._routes():
            blocks = Retry()(route.source.sample, SAMPLES)
            make = _maker_of(self._number, route.cls)
            shapes.append(shape(route.cls, [join(block) for block in blocks], make))
        return shapes

    def _routes(self) -> list[Route]:
        return self._project.routes(self._made.revision, self._made)

    def _try_out(self) -> None:
        """Put one aggregate of each class, and remove it. Raises Refused where that does not work,
        and where keys of the drill are taken."""
        for route, each in zip(self._routes(), self._shapes, strict=True):
            names = [f"{w}.{n}.0" for w in range(self._terms.writers)
                     for n in range(self._terms.keys)]  # fmt: skip
            if _held(route, "source", each, names):
                raise Refused("keys of the drill are taken; try again", where=route.cls)
            id = each.maker.id(f"{self._terms.writers}.0.0")
            value = each.value(f"{self._terms.writers}.0.0", 0, 1)
            with self._gateway(route.cls) as gateway:
                try:
                    gateway.put(id, value)
                    if each.items:
                        item = each.element(value, 2)
                        value = gateway.append(id, each.items_path, item).value
                    found = gateway.get(id)
                except MigratorError as error:
                    raise Refused(
                        f"what lies there can't be put again under another key: {error.what}",
                        where=error.where or route.cls, hint=error.hint,
                    ) from None  # fmt: skip
                finally:
                    with suppress(MigratorError):
                        gateway.delete(id)
            if found is None or each.state(found.value) != each.state(value):
                raise Refused(
                    "what was put came back changed, so that nothing can be proven",
                    where=route.cls,
                )

    def _begin(self) -> Run:
        project, made, terms = self._project, self._made, self._terms.apply
        if not made.live:
            raise Refused(
                "this plan moves at rest, and a drill is for live moves",
                hint=f"plan it live:  migrator plan {made.revision} --live",
            )
        if (run := commands.unfinished(project, made.revision)) is not None:
            raise Refused(
                f"run {run.id} is under way, and a drill begins one of its own",
                hint=f"leave that one first:  migrator abort {made.revision}",
            )
        commands.check_plan(project, made, terms)
        with Lease(project.control, f"{project.settings.env}/{made.revision}"):
            return taken_up(project, made.revision, made, terms)

    def _orders(self, here: Path, number: int) -> traffic.Orders:
        terms, settings = self._terms, self._project.settings
        return traffic.Orders(
            settings.file, settings.env, self._made.revision, here, number, tuple(self._shapes),
            terms.mix, terms.keys, terms.writers / terms.rate, terms.skew, self._seed,
            GatewayTerms(lease=terms.lease),
        )  # fmt: skip

    def _gateway(self, cls: str) -> Gateway:
        settings = self._project.settings
        return Gateway.open(
            cls, settings.file, settings.env, revision=self._made.revision, shape="source",
            terms=GatewayTerms(lease=self._terms.lease),
        )  # fmt: skip

    # ------------------------------------------------------------------ the life of the move

    def _live(self, run: Run, mirror: MirrorProcess, writers: list[Writer]) -> None:
        """From the first write to the last."""
        with self._stage("start"):
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
        with self._stage("copy"), self._killing(victims.get("copy"), self._at_once()):
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
        with self._stage("stop"):
            for writer in writers:
                writer.stop()

    def _at_once(self) -> float:
        return self._chosen.uniform(0.0, 0.3)

    def _traffic(self, name: str, writers: list[Writer], victims: Mapping[str, Killable]) -> None:
        """Let the writers work; in the middle of it something may be killed."""
        seconds = self._terms.seconds
        after = seconds * self._chosen.uniform(0.2, 0.5)
        with self._stage(name), self._killing(victims.get(name), after):
            if self._stop.wait(seconds):
                raise Interrupted("stopped")
        for writer in writers:
            writer.check()

    def _swap(self, name: str, run: Run, to: Phase, victim: Killable | None = None) -> None:
        """Swap the sides. What was undone, also by a mirror that was killed, is tried again."""
        with self._stage(name) as stage, self._killing(victim, self._at_once()):
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

    @contextmanager
    def _stage(self, name: str) -> Iterator[report.Stage]:
        self._told(name)
        stage = report.Stage(name=name, began=self._now(), ended=0.0)
        self._stages.append(stage)
        try:
            yield stage
        finally:
            stage.ended = self._now()

    def _now(self) -> float:
        return round(time.monotonic() - self._began, 6)

    @contextmanager
    def _killing(self, victim: Killable | None, after: float) -> Iterator[None]:
        """Kill a process while the block runs, or at its end, and start it again."""
        if victim is None:
            yield
            return
        errors: list[MigratorError] = []

        def kill() -> None:
            time.sleep(after)
            victim.kill()
            at = self._now()
            try:
                victim.start()
                victim.wait()
            except MigratorError as error:
                errors.append(error)
            again = self._now()
            self._kills.append(report.Kill(at=at, process=victim.name, again=again))

        thread = threading.Thread(target=kill, name="kill")
        thread.start()
        try:
            yield
        finally:
            thread.join()
        if errors:
            raise errors[0]

    @contextmanager
    def _watching(self, live: LiveState) -> Iterator[None]:
        """Note, all the while, how far the mirror says that it is behind."""
        done = threading.Event()

        def watch() -> None:
            last = 0.0
            while not done.wait(_LOOK):
                with suppress(MigratorError):
                    at, told = live.told()
                    lag = told.get("lag")
                    if at != last and isinstance(lag, int | float):
                        self._lag.append((self._now(), float(lag)))
                    last = at

        thread = threading.Thread(target=watch, name="lag", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    # ------------------------------------------------------------------ after

    def _check(self, run: Run, known: Known) -> list[Fault]:
        """What both sides hold, against what was acknowledged."""
        primary = self._project.control.run(run.id).primary
        faults = list(known.faults)
        for side in ("source", "target"):
            held: dict[Key, State | None] = {}
            for route, each in zip(self._routes(), self._shapes, strict=True):
                names = [name for cls, name in known.certain if cls == route.cls]
                held.update(_held(route, side, each, names))
            faults += known.check("primary" if side == primary else "mirror", held)
        return faults

    def _leave(self, run: Run, mirror: MirrorProcess, known: Known) -> int:
        """Remove the keys of the drill and end the run; how many keys are left."""
        for cls in dict.fromkeys(cls for cls, _ in known.certain):
            make = next(each.maker for each in self._shapes if each.cls == cls)
            with self._gateway(cls) as gateway:
                for name in (name for of, name in known.certain if of == cls):
                    gateway.delete(make.id(name))
        now = self._project.control.run(run.id)
        if self._terms.finish and now.phase is Phase.CUT_OVER:
            commands.finish(self._project, run.revision, keep_source=True)
        else:
            if now.phase is Phase.CUT_OVER:
                self._swap("roll back at the end", run, Phase.SHADOW_READ)
            fresh = all(move.fresh for move in self._made.moves)
            commands.abort(self._project, run.revision, drop_target=fresh)
        return sum(
            self._remove(route, side, each, known)
            for route, each in zip(self._routes(), self._shapes, strict=True)
            for side in ("source", "target")
        )

    def _remove(self, route: Route, side: str, each: Shape, known: Known) -> int:
        """Remove what the mirror had not removed yet when the run ended."""
        collection = route.source if side == "source" else route.target
        if not Retry()(collection.exists):
            return 0
        ids = [each.maker.id(name) for cls, name in known.certain if cls == route.cls]
        for batch in _batches(ids):
            blocks = [block for block in Retry()(collection.read, batch) if block is not None]
            if blocks:
                Retry()(collection.delete, [Address(block.id, block.place) for block in blocks])
        return sum(
            block is not None
            for batch in _batches(ids)
            for block in Retry()(collection.read, batch)
        )

    def _report(
        self, run: Run, started: float, known: Known, faults: list[Fault],
        verified: list[Verification], left: int, problem: str,
    ) -> report.Report:  # fmt: skip
        terms, seconds = self._terms, self._now()
        lists = any(each.items for each in self._shapes)
        wanted = {
            act: terms.minimum for act, part in terms.mix.items()
            if part > 0 and (lists or act is not Act.APPEND)
        }  # fmt: skip
        counts = report.count(known.done, wanted)
        why = report.reasons(counts, faults, verified, left, problem)
        for stage in self._stages:
            if stage.name.startswith(("cut over", "roll back")):
                began, ended = self._began + stage.began, self._began + stage.ended
                stage.pause = round(known.longest(began, ended)[0], 6) or None
        bucket = max(0.25, round(seconds / BUCKETS, 2))
        return report.Report(
            run=run.id, revision=run.revision, env=run.env,
            classes=[each.cls for each in self._shapes],
            ending=self._project.control.run(run.id).phase.value,
            began=started, seconds=seconds, passed=not why, reasons=why,
            asked=report.Asked(
                writers=terms.writers, rate=terms.rate, keys=terms.keys, skew=terms.skew,
                mix={act.value: part for act, part in terms.mix.items()},
                seconds=terms.seconds, seed=self._seed,
            ),
            stages=self._stages, kills=self._kills, done=counts, keys=len(known.certain),
            left=left, longest=round(known.longest(0.0, self._began + seconds)[0], 6),
            bucket=bucket,
            throughput=report.throughput(known, self._began, seconds, bucket), lag=self._lag,
            refused=dict(known.reasons.most_common(20)), faults=faults[: report.MOST_FAULTS],
            more_faults=max(0, len(faults) - report.MOST_FAULTS), verified=verified,
        )  # fmt: skip

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


def _maker_of(number: int, cls: str) -> Callable[[Value], Maker]:
    return lambda id: maker(id, f"{number:08x}", number, cls)


def _batches(ids: list[Value]) -> Iterator[list[Value]]:
    for start in range(0, len(ids), _BATCH):
        yield ids[start : start + _BATCH]


def _held(route: Route, side: str, each: Shape, names: list[str]) -> dict[Key, State | None]:
    """What a side holds under keys of the drill, in the shape of the source."""
    sides = Sides(route, side, mirrored=True, shape="source")
    found: dict[Key, State | None] = {}
    for start in range(0, len(names), _BATCH):
        some = names[start : start + _BATCH]
        blocks = Retry()(sides.primary.read, [each.maker.id(name) for name in some])
        for name, block in zip(some, blocks, strict=True):
            if block is not None:
                found[route.cls, name] = each.state(sides.seen(block).value)
    return found
