"""repair: who is the primary, when the control database and the stores disagree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from migrator.cli.asking import confirm, need_terminal
from migrator.cli.options import Options, global_options, pass_options
from migrator.cli.output import tell_all, tell_json
from migrator.cli.signals import stoppable
from migrator.errors import Usage, Waiting

if TYPE_CHECKING:
    from migrator.commands import Inspected
    from migrator.commands.repairing import Way


@click.command("repair")
@click.argument("revision")
@click.option(
    "--go-on",
    "way",
    flag_value="go-on",
    help="End a swap of the sides that was left: undone or carried through.",
)
@click.option(
    "--rebuild",
    "way",
    flag_value="rebuild",
    help="Begin one reign more, on the side of the latest, everywhere.",
)
@click.option(
    "--forget",
    "way",
    flag_value="forget",
    help="Remove what the stores note of a run that is no more.",
)
@click.option(
    "--primary",
    type=click.Choice(["source", "target"]),
    help="Whose data is kept, where nobody else can tell.",
)
@click.option(
    "--hook",
    metavar="COMMAND",
    default="",
    help="Tells the applications where to write after --rebuild.",
)
@click.option("--yes", is_flag=True, help="Don't ask.")  # fmt: skip
@global_options
@pass_options
def repair_command(
    options: Options, revision: str, way: Way | None, primary: str | None, hook: str, yes: bool
) -> int:
    """Ask both sides of REVISION and the control database who is the primary, and say what to do.

    Nothing is changed without one of --go-on, --rebuild and --forget. Exits with 5 where there is
    something to decide.
    """
    from migrator import commands

    if way != "rebuild" and (primary or hook):
        raise Usage("--primary and --hook belong to --rebuild")
    with options.project() as project, stoppable(f"migrator repair {revision}") as stop:
        found = commands.inspect(project, revision)
        if way is not None:
            if not yes:
                if not options.json:
                    _tell(options, found)
                named = f" --primary {primary}" if primary else ""
                need_terminal(options, f"migrator repair {revision} --{way}{named} --yes")
                confirm(f"--{way}{named}?")
            found = commands.repair(project, revision, way, primary=primary, hook=hook, stop=stop)
    _tell(options, found)
    return 0 if found.settled else Waiting.exit_code


def _tell(options: Options, found: Inspected) -> None:
    from migrator.render.repairing import repair_lines

    if options.json:
        tell_json(found)
    else:
        tell_all(repair_lines(found, options.complete))
