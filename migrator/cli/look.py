"""stores, status, log: looking, and changing nothing."""

from __future__ import annotations

import click

from migrator.cli.options import Number, Options, global_options, pass_options
from migrator.cli.output import tell_all, tell_json
from migrator.errors import Failed


@click.command("stores")
@click.option("--kinds", is_flag=True, help="Show how each store holds each kind of value.")
@global_options
@pass_options
def stores_command(options: Options, kinds: bool) -> int:
    """Ping every store of the environment; exits with 1 where one does not answer."""
    from migrator import commands
    from migrator.render.scripts import kind_lines, store_lines

    with options.project() as project:
        if kinds:
            table = commands.kinds(project)
            if options.json:
                tell_json(table)
            else:
                tell_all(kind_lines(table))
            return 0
        found = commands.stores(project)
    if options.json:
        tell_json(found)
    else:
        tell_all(store_lines(found))
    return 0 if all(each.ok for each in found) else Failed.exit_code


@click.command("status")
@click.argument("revision", required=False)
@click.option("--watch", is_flag=True, help="Go on looking until what is under way has ended.")
@click.option("--every", type=Number(0.1, 3600), default=2.0, show_default=True,
              metavar="SECONDS", help="How often --watch looks.")  # fmt: skip
@global_options
@pass_options
def status_command(options: Options, revision: str | None, watch: bool, every: float) -> None:
    """Tell where every run stands, or that of REVISION, and what comes next.

    --watch tells beside that whether both sides come together, and when, as things went in the
    last half minute. On a terminal it stays in its place; elsewhere each change is a line, and
    as JSON each look at each run is an object on a line of its own.
    """
    from migrator import commands
    from migrator.render.runs import status_lines

    if watch:
        from migrator.cli.watching import look_on

        look_on(options, revision, every)
        return
    with options.project() as project:
        found = commands.status(project, revision)
    if options.json:
        tell_json(found)
    else:
        tell_all(status_lines(found, options.complete))


@click.command("log")
@click.argument("run", metavar="RUN|REVISION")
@global_options
@pass_options
def log_command(options: Options, run: str) -> None:
    """Print the record of a run: who, where, when, what."""
    from migrator import commands
    from migrator.render.runs import event_lines

    with options.project() as project:
        events = commands.events(project, run)
    if options.json:
        tell_json(events)
    else:
        tell_all(event_lines(events))
