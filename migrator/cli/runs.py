"""verify, rollback, abort, finish, quarantine: what follows an apply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from migrator.cli import signals
from migrator.cli.asking import choose, confirm, need_terminal, tell_unknown_keys
from migrator.cli.options import (
    Options,
    address,
    global_options,
    pass_options,
    swap_options,
)
from migrator.cli.output import tell, tell_all, tell_json
from migrator.cli.signals import stoppable
from migrator.errors import Mismatch, Refused, Usage
from migrator.render.text import places

if TYPE_CHECKING:
    from migrator.commands import Project, SwapTerms
    from migrator.state import Run


@click.command("verify")
@click.argument("revision", required=False)
@click.option("--workers", type=click.IntRange(1, 64), default=2, show_default=True,
              help="How many ranges are compared at once.")  # fmt: skip
@click.option(
    "--mend",
    is_flag=True,
    help="Have the mirror of a live move reconcile what differs, and look again.",
)
@global_options
@pass_options
def verify_command(options: Options, revision: str | None, workers: int, mend: bool) -> int:
    """Compare both sides of REVISION, all blocks, anew (default: of the last run).

    Exits with 4 where they differ, and names keys and paths.
    """
    from migrator import commands
    from migrator.cli.watch import Watch
    from migrator.render.runs import verification_lines

    with options.project() as project:
        name = _last(project) if revision is None else revision
        with (
            stoppable(f"migrator verify {name}") as stop,
            Watch(options) as watch,
        ):
            found = commands.verify_run(
                project, name, watcher=watch, stop=stop, workers=workers, mend=mend
            )
    if options.json:
        tell_json(found)
    else:
        tell_all(verification_lines(found, all_keys=True))
    return 0 if all(each.clean for each in found) else Mismatch.exit_code


def _last(project: Project) -> str:
    runs = [run for run in project.control.runs() if not run.phase.ended]
    if not runs:
        raise Refused("no run is under way", hint="see what there is:  migrator status")
    return runs[-1].revision


_accept_key = click.option(
    "--accept-key", multiple=True, metavar="KEY", help="Leave this block behind (Class:id)."
)


def _with_keys(swap: SwapTerms, keys: tuple[str, ...], *, dry_run: bool = False) -> SwapTerms:
    from msgspec.structs import replace

    return replace(swap, accept_keys=keys, dry_run=dry_run)


@click.command("mirror")
@click.argument("revision", required=False)
@click.option("--metrics", callback=address, metavar="[HOST:]PORT",
              help="Serve figures to Prometheus there; without HOST on loopback.")  # fmt: skip
@global_options
@pass_options
def mirror_command(options: Options, revision: str | None, metrics: tuple[str, int] | None) -> None:
    """Carry every write to the primary of REVISION over to its mirror, until the move ends.

    This is the long-running worker of a live move (default: of the last run). One works, others
    of the same revision stand by. What apply, cutover and rollback ask for is done here.
    """
    from migrator import commands
    from migrator.cli.metrics import serving
    from migrator.cli.results import run_told

    # From the beginning on: to find the run it may have to wait for its control database.
    with signals.bounded(signals.PATIENCE), options.project() as project:
        name = _last(project) if revision is None else revision
        with serving(project, name, metrics), stoppable(f"migrator mirror {name}") as stop:
            run = commands.mirror(project, name, stop=stop)
    if options.json:
        tell_json(run_told(run))
    else:
        tell(f"{run.revision} is {run.phase.words}: there is nothing to mirror any more")


@click.command("cutover")
@click.argument("revision")
@click.option("--dry-run", is_flag=True, help="Do all of it but the swap; measure the pause.")
@_accept_key
@swap_options
@global_options
@pass_options
def cutover_command(
    options: Options, revision: str, dry_run: bool, accept_key: tuple[str, ...], swap: SwapTerms
) -> None:
    """Make the target of REVISION, a live move, the primary.

    Writes are stopped for a moment: until the mirror holds the last of them. Where that takes
    longer than --bound, it is undone and nothing has changed.
    """
    from migrator import commands
    from migrator.cli.watch import Watch
    from migrator.render.runs import swapped_lines

    terms = _with_keys(swap, accept_key, dry_run=dry_run)
    with options.project() as project:
        run = project.control.run(project.revision_id(revision))
        tell_unknown_keys(project, run, accept_key)
        with stoppable(f"migrator cutover {revision}") as stop, Watch(options) as watch:
            done = commands.cutover(project, revision, swap=terms, watcher=watch, stop=stop)
        run = project.control.run(done.run)
        needed = commands.stopping(project, run)
    if options.json:
        tell_json(done)
    else:
        tell_all(swapped_lines(done, _places(run, done.primary), options.complete, needed))


@click.command("rollback")
@click.argument("revision")
@click.option("--carry-back", is_flag=True,
              help="Copy what was written since the cut-over back to the source.")  # fmt: skip
@click.option("--discard", is_flag=True, help="Give up what was written since the cut-over.")
@_accept_key
@swap_options
@global_options
@pass_options
def rollback_command(
    options: Options, revision: str, carry_back: bool, discard: bool,
    accept_key: tuple[str, ...], swap: SwapTerms,
) -> None:  # fmt: skip
    """Make the source of REVISION the primary again.

    At rest both sides are compared first, and what was written to the target since the cut-over
    is never lost unless you say so. Of a live move the mirror has carried it back already, and
    goes on; --accept-key, --hook, --bound and --lag are for that.
    """
    from migrator import commands
    from migrator.cli.watch import Watch
    from migrator.render.runs import swapped_lines

    if carry_back and discard:
        raise Usage("--carry-back and --discard exclude each other")
    with options.project() as project:
        run = project.control.run(project.revision_id(revision))
        tell_unknown_keys(project, run, accept_key)
        with (
            stoppable(f"migrator rollback {revision}") as stop,
            Watch(options) as watch,
        ):
            done = commands.rollback(
                project, revision, carry_back=carry_back, discard=discard,
                swap=_with_keys(swap, accept_key), watcher=watch, stop=stop,
            )  # fmt: skip
        run = project.control.run(done.run)
        needed = commands.stopping(project, run)
    if options.json:
        tell_json(done)
        return
    if run.live:
        tell_all(swapped_lines(done, _places(run, "source"), options.complete, needed))
        return
    written = sum(each.differ + each.missing + each.extra for each in done.verified)
    kept = f"; {written:,} blocks written since the cut-over were given up" if written else ""
    tell(f"{places(_places(run, 'source'), 'is', 'are')} the primary again{kept}")
    ways = f"migrator apply {run.revision} cuts over again,  migrator abort {run.revision} leaves"
    tell(options.complete(f"the copy stays:  {ways} the move"))


def _places(run: Run, side: str) -> list[str]:
    from migrator.commands import frozen_plan

    return [str(getattr(move, side)) for move in frozen_plan(run).moves]


@click.command("abort")
@click.argument("revision")
@click.option("--drop-target", "target", flag_value="drop", help="Drop what was copied.")
@click.option("--keep-target", "target", flag_value="keep", help="Leave the target as it is.")
@click.option("--leave-target", "target", flag_value="leave",
              help="Ask nothing of the target's store, which is down for good.")  # fmt: skip
@global_options
@pass_options
def abort_command(options: Options, revision: str, target: str | None) -> None:
    """Leave the move of REVISION; the source stays the primary."""
    from migrator import commands
    from migrator.cli.results import run_told

    with options.project() as project:
        run = project.control.run(project.revision_id(revision))
        copied = ", ".join(commands.held_at(project, revision, "target"))
        if target is None:
            words = f"migrator abort {revision} --drop-target, or --keep-target"
            need_terminal(options, words)
            target = choose(f"Drop or keep what was copied to {copied}?", ["drop", "keep"])
        run = commands.abort(
            project, revision, drop_target=target == "drop", leave_target=target == "leave"
        )
    if options.json:
        tell_json(run_told(run))
    else:
        what = {"drop": "dropped", "keep": "kept", "leave": "left as it is"}[target]
        tell(f"{run.revision} is aborted; {what}: {copied}")
        if target == "leave":
            names = commands.left_on_servers(run)
            tell(f"should it come back, remove there what begins with {names}")


@click.command("finish")
@click.argument("revision")
@click.option("--keep-source", is_flag=True, help="Drop nothing.")
@click.option(
    "--accept-key",
    multiple=True,
    metavar="KEY",
    help="Drop this block in quarantine with the source (Class:id).",
)
@click.option("--yes", is_flag=True, help="Don't ask.")
@global_options
@pass_options
def finish_command(
    options: Options, revision: str, keep_source: bool, accept_key: tuple[str, ...], yes: bool
) -> None:
    """End the move of REVISION for good: drop its source. There is no way back."""
    from migrator import commands
    from migrator.cli.results import run_told
    from migrator.model.phase import Phase

    with options.project() as project:
        run = project.control.run(project.revision_id(revision))
        tell_unknown_keys(project, run, accept_key)
        sources = ", ".join(commands.held_at(project, revision, "source"))
        if run.phase is Phase.CUT_OVER and not yes:
            more = " --keep-source" if keep_source else ""
            need_terminal(options, f"migrator finish {revision}{more} --yes")
            confirm(_question(sources, keep_source))
        run = commands.finish(project, revision, keep_source=keep_source, accept_keys=accept_key)
        targets = _places(run, "target")
    if options.json:
        tell_json(run_told(run))
    else:
        what = "kept" if keep_source else "dropped"
        held = places(targets, "holds", "hold")
        tell(f"{run.revision} is finished: {held} the data; {what}: {sources}")


def _question(sources: str, keep_source: bool) -> str:
    if keep_source:
        return f"End the move? {sources} is kept, but there is no rollback any more."
    return f"End the move and DROP {sources} with all that is in it? There is no way back."


@click.group("quarantine", no_args_is_help=False)
def quarantine_command() -> None:
    """Blocks that could not be written, and why."""


@quarantine_command.command("list")
@click.argument("revision")
@global_options
@pass_options
def quarantine_list(options: Options, revision: str) -> None:
    """List the blocks of REVISION that are set aside."""
    from migrator import commands
    from migrator.render.runs import quarantine_lines

    with options.project() as project:
        found = commands.quarantine(project, revision)
    if options.json:
        tell_json(found)
    else:
        tell_all(quarantine_lines(found, revision, options.complete))


@quarantine_command.command("retry")
@click.argument("revision")
@global_options
@pass_options
def quarantine_retry(options: Options, revision: str) -> int:
    """Write them again, from what the source holds now. Exits with 5 where some remain."""
    from migrator import commands
    from migrator.cli.results import Retried
    from migrator.errors import Waiting

    with options.project() as project:
        written, remain = commands.retry_quarantined(project, revision)
    if options.json:
        tell_json(Retried(written=written, remain=remain))
    else:
        tell(f"{written:,} written, {remain:,} remain in quarantine")
    return Waiting.exit_code if remain else 0
