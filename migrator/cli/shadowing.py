"""shadow: keys read on both sides of a live move, and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from migrator.cli.options import Options, global_options, pass_options
from migrator.cli.output import tell_all, tell_json
from migrator.cli.signals import stoppable
from migrator.errors import Failed, Interrupted, Mismatch

if TYPE_CHECKING:
    from migrator.commands import Shadowed


@click.command("shadow")
@click.argument("revision")
@click.option("--sample", type=click.IntRange(1, 100_000), default=100, show_default=True,
              help="How many keys of each class are read.")  # fmt: skip
@click.option("--every", type=click.FloatRange(0, min_open=True), metavar="SECONDS",
              help="Go on with other keys, so often, until the run ends.")  # fmt: skip
@global_options
@pass_options
def shadow_command(options: Options, revision: str, sample: int, every: float | None) -> int:
    """Read keys of REVISION, a live move, on both sides, and compare and time the answers.

    The keys are taken from all over the primary. A key that lags behind is looked at again once
    the mirror holds what was written. Exits with 4 where a key differs, and names it with its
    paths; with 1 where a side could not be read. As JSON each round is a line with --every.
    """
    from migrator import commands
    from migrator.render.shadowing import shadow_lines

    code = 0
    with options.project() as project, stoppable(f"migrator shadow {revision}") as stop:
        while True:
            try:
                found = commands.shadow(project, revision, sample, stop=stop)
            except Interrupted:
                if code:
                    return code  # what was seen counts for more
                raise
            code = max(code, _code(found))
            if options.json:
                tell_json(found, one_line=every is not None)
            else:
                tell_all(shadow_lines(found))
            if every is None:
                return code
            stop.wait(every)
            if project.control.run(revision).phase.ended:
                return code


def _code(found: list[Shadowed]) -> int:
    if any(each.mismatch for each in found):
        return Mismatch.exit_code
    return Failed.exit_code if any(each.errors for each in found) else 0
