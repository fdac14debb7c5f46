"""throttle, pause, resume: steering a run that goes on somewhere else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from migrator.cli.options import Number, Options, global_options, pass_options
from migrator.cli.output import tell, tell_json
from migrator.errors import Usage

if TYPE_CHECKING:
    from migrator.commands import Paced


@click.command("throttle")
@click.argument("revision")
@click.option("--rate", type=Number(0, min_open=True), metavar="BLOCKS_PER_S",
              help="How many blocks a second are copied at most.")  # fmt: skip
@click.option("--off", is_flag=True, help="Copy as fast as it goes.")
@global_options
@pass_options
def throttle_command(options: Options, revision: str, rate: float | None, off: bool) -> None:
    """Bound how fast REVISION is copied, while that goes on; obeyed within a second.

    What is written to the primary of a live move is mirrored as fast as ever: held back, it
    would only grow in the feed.
    """
    from migrator import commands

    if off is (rate is not None):
        raise Usage("say --rate BLOCKS_PER_S, or --off")
    with options.project() as project:
        done = commands.throttle(project, revision, rate)
    _told(options, done)


@click.command("pause")
@click.argument("revision")
@global_options
@pass_options
def pause_command(options: Options, revision: str) -> None:
    """Copy nothing more of REVISION until it is resumed; obeyed within a second.

    What is written to the primary of a live move goes on being mirrored.
    """
    from migrator import commands

    with options.project() as project:
        done = commands.pause(project, revision)
    _told(options, done)


@click.command("resume")
@click.argument("revision")
@global_options
@pass_options
def resume_command(options: Options, revision: str) -> None:
    """Let the copying of REVISION go on."""
    from migrator import commands

    with options.project() as project:
        done = commands.resume(project, revision)
    _told(options, done)


def _told(options: Options, done: Paced) -> None:
    if options.json:
        tell_json(done)
        return
    pace = "as fast as it goes" if done.throttle is None else f"{done.throttle:,g} blocks/s at most"
    if not done.paused:
        tell(f"{done.revision} is copied: {pace}")
        return
    still = "; writes to the primary go on being mirrored" if done.live else ""
    tell(f"{done.revision} is paused: nothing more is copied{still}")
    tell(options.complete(f"go on with:  migrator resume {done.revision}"))
