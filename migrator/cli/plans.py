"""plan, show, apply."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from migrator.cli.asking import confirm, need_terminal, tell_unknown_codes, tell_unknown_keys
from migrator.cli.options import Options, global_options, pass_options, swap_options
from migrator.cli.output import tell, tell_all, tell_json
from migrator.cli.signals import stoppable
from migrator.errors import Interrupted, Refused
from migrator.render.text import Line

if TYPE_CHECKING:
    from migrator.commands import Applied, Progress, Project, SwapTerms, Terms
    from migrator.model.plan import Plan
    from migrator.state import Run

Made = TypeVar("Made")

# As model/phase.py has them, which would take long to load for the help.
_UNTIL = ["prepared", "dual_write", "backfilled", "shadow_read", "cut_over"]


@click.command("plan")
@click.argument("revision", required=False)
@click.option(
    "--full", is_flag=True, help="Read every block; write every difference beside the plan."
)
@click.option("--live", is_flag=True, help="The applications go on writing meanwhile.")
@click.option(
    "-o",
    "output",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to write it; default: under plans/.",
)
@click.option(
    "--detailed-exitcode",
    is_flag=True,
    help="Exit with 2 where changes are pending, with 3 where a finding forbids them.",
)
@global_options
@pass_options
def plan_command(
    options: Options,
    revision: str | None,
    full: bool,
    live: bool,
    output: Path | None,
    detailed_exitcode: bool,
) -> int:
    """Tell what REVISION would do now (default: the next one that is not done).

    Nothing is changed in any store. The plan is written to a file for review and for apply.
    """
    from migrator import commands

    with options.project() as project:
        name = commands.pending(project) if revision is None else revision
        if name is None:
            return _nothing_to_do(options)
        plan = partial(commands.plan_to_file, project, name, output, full=full, live=live)
        made, path = _watched(options, lambda progress: plan(progress=progress))
        run = commands.unfinished(project, made.revision)
    if options.json:
        tell_json(made)
    else:
        show_plan(options, made, path)
        if run is not None:
            text = f"run {run.id} is under way ({run.phase.words}); go on with that one:"
            tell(Line(options.complete(f"{text}  migrator apply {run.revision}"), "yellow"))
    if detailed_exitcode:
        return 3 if made.errors else 2 if made.blocks else 0
    return 0


def _nothing_to_do(options: Options, revision: str | None = None) -> int:
    if options.json:
        tell_json(None)
    else:
        tell(f"nothing to do: {f'{revision} is' if revision else 'every revision is'} done")
    return 0


def _finished(project: Project, revision: str) -> bool:
    return project.revision_id(revision) in project.done()


def _watched(options: Options, make: Callable[[Progress], Made]) -> Made:
    """Plan, with progress to look at."""
    from migrator.cli.watch import Watch

    with stoppable() as stop, Watch(options) as watch:

        def progress(cls: str, done: int, of: int) -> None:
            if stop.is_set():
                raise Interrupted("stopped; nothing was changed")
            watch.surveyed(cls, done, of)

        return make(progress)


def show_plan(options: Options, made: Plan, path: Path) -> None:
    """Print a plan, with where it lies and how it is applied."""
    from migrator.planning.differences import beside
    from migrator.render.plan import plan_lines

    tell_all(plan_lines(made))
    near = nearest(path)
    if made.differences:
        where = nearest(beside(path))
        tell("", f"{where}    every one of {made.differences:,} changed or deleted blocks")
    tell("", f"{near}    apply it with:  {options.complete('migrator apply')} {near}")


def nearest(path: Path) -> Path:
    """A path from here where it lies below, else the whole path."""
    here = Path.cwd()
    return path.absolute().relative_to(here) if path.absolute().is_relative_to(here) else path


@click.command("show")
@click.argument("plan")
@global_options
@pass_options
def show_command(options: Options, plan: str) -> None:
    """Print a plan again: a file, or the latest plan of a revision."""
    from migrator import commands

    with options.project() as project:
        path = commands.plan_file(project, plan)
        made = commands.show(project, plan)
    if options.json:
        tell_json(made)
    else:
        show_plan(options, made, path)


@click.command("apply")
@click.argument("plan", metavar="[PLAN|REVISION]", required=False)
@click.option(
    "--until",
    type=click.Choice(_UNTIL),
    default="cut_over",
    show_default=True,
    help="The phase to stop at.",
)
@click.option("--yes", is_flag=True, help="Don't ask.")
@click.option("--live", is_flag=True, help="Plan a REVISION live, as its last plan may have been.")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=2,
    show_default=True,
    help="How many ranges are copied at once.",
)
@click.option("--accept", multiple=True, metavar="CODE", help="Accept a finding of the plan.")
@click.option(
    "--accept-key", multiple=True, metavar="KEY", help="Cut over without this block (Class:id)."
)
@swap_options
@global_options
@pass_options
def apply_command(
    options: Options, plan: str | None, until: str, yes: bool, live: bool, workers: int,
    accept: tuple[str, ...], accept_key: tuple[str, ...], swap: SwapTerms,
) -> int:  # fmt: skip
    """Carry a plan out: copy, compare, make the target the primary.

    A PLAN file is carried out as it is. A REVISION is planned and shown first, live where its last
    plan was or --live says so, and you are asked. What was interrupted goes on from its
    checkpoints with the same command.
    --hook, --bound and --lag are for a live plan.
    """
    from migrator import commands

    with options.project() as project:
        name = commands.pending(project) if plan is None else plan
        if name is None or (not commands.is_plan_file(name) and _finished(project, name)):
            return _nothing_to_do(options, name)
        run = _run_of(project, name)
        terms = commands.Terms(accept, accept_key, workers, swap)
        if _is_done(options, project, run, until):
            return 0
        made = _chosen(options, project, name, run, terms, yes, live=live)
        if live and not made.live:
            raise Refused(
                f"{made.revision} is planned at rest: what is written meanwhile is not followed",
                hint=f"plan it live:  migrator plan {made.revision} --live",
            )
        left = [] if run is None else commands.unknown_keys(project, run, accept_key)
        done = _apply(options, project, made, until, terms)
        # A block may have been set aside on the way, or before.
        now = project.control.run(done.run)
        tell_unknown_keys(project, now, accept_key if run is None else left)
    return 0


def _run_of(project: Project, name: str) -> Run | None:
    """The unfinished run of a revision; None for a plan file, and where there is none."""
    from migrator import commands

    if commands.is_plan_file(name):
        return None
    return commands.unfinished(project, project.revision_id(name))


def _is_done(options: Options, project: Project, run: Run | None, until: str) -> bool:
    """Whether a run is as far as asked for; says so."""
    from migrator import commands
    from migrator.model.phase import Phase
    from migrator.render.runs import after_cut_over

    if run is None or run.phase.rank < Phase(until).rank:
        return False
    if options.json:
        tell_json(_as_applied(run))
        return True
    tell(f"{run.revision} is {run.phase.words} already: nothing to do")
    if run.phase is Phase.CUT_OVER:
        needed = commands.stopping(project, run)
        tell_all(after_cut_over(run.revision, options.complete, needed))
    return True


def _as_applied(run: Run) -> Applied:
    from migrator.commands import Applied

    return Applied(
        run=run.id, revision=run.revision, phase=run.phase.value, primary=run.primary, verified=[]
    )


def _chosen(
    options: Options, project: Project, name: str, run: Run | None, terms: Terms, yes: bool, *,
    live: bool,
) -> Plan:  # fmt: skip
    """The plan to carry out: of the run that is under way, of a file, or a new one, agreed to."""
    from migrator import commands
    from migrator.render.plan import plan_lines

    if run is not None or commands.is_plan_file(name):
        if run is not None and not options.json:
            tell(f"going on with run {run.id}, which is {run.phase.words}")
        made = commands.show(project, name) if run is None else commands.frozen_plan(run)
        tell_unknown_codes(made, terms.accept)
        return made
    revision = project.revision_id(name)
    if not yes:
        # Before the work of a plan that nobody could agree to.
        need_terminal(options, f"migrator apply {revision} --yes")
    # Applications go on writing where they were to when it was planned last.
    live = live or commands.planned_live(project, revision)
    made = _watched(
        options, lambda told: commands.plan(project, revision, live=live, progress=told)
    )
    if not options.json:
        tell_all(plan_lines(made))
        tell("")
    tell_unknown_codes(made, terms.accept)
    commands.check_plan(project, made, terms)
    if not yes:
        confirm("Apply this?")
    return made


def _apply(options: Options, project: Project, made: Plan, until: str, terms: Terms) -> Applied:
    from migrator import commands
    from migrator.cli.watch import Watch
    from migrator.model.phase import Phase
    from migrator.render.runs import applied_lines, verification_lines

    with (
        stoppable(f"migrator apply {made.revision}") as stop,
        Watch(options, made) as watch,
    ):
        done = commands.apply(
            project, made, until=Phase(until), terms=terms, watcher=watch, stop=stop
        )
    if options.json:
        tell_json(done)
        return done
    tell_all(verification_lines(done.verified, all_keys=False))
    side = "target" if done.primary == "target" else "source"
    primary = [str(getattr(move, side)) for move in made.moves]
    needed = commands.stopping(project, project.control.run(done.run))
    tell_all(applied_lines(done, primary, options.complete, needed, live=made.live))
    return done
