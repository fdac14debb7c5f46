"""reads: a share of gateways' reads that the mirror of a live move may answer."""

from __future__ import annotations

import click

from migrator.cli.options import Number, Options, global_options, pass_options
from migrator.cli.output import tell, tell_json
from migrator.cli.shadowing import SHARE
from migrator.errors import Usage


@click.command("reads")
@click.argument("revision")
@click.option("--share", type=SHARE, metavar="SHARE",
              help="Let the mirror answer this share of reads from now on, such as 0.1 or 10%; "
              "0 for none.")  # fmt: skip
@click.option("--stale", type=Number(0, min_open=True), metavar="SECONDS",
              help="By how much its answers may be older than the primary, from now on; 10 where "
              "nobody ever said.")  # fmt: skip
@global_options
@pass_options
def reads_command(
    options: Options, revision: str, share: float | None, stale: float | None
) -> None:
    """Tell how many reads of REVISION, a live move, its mirror answers, or let it answer more.

    Gateways obey when they renew their lease. Which keys they read there follows from the key, so
    that a larger share adds keys to those of a smaller one. Nobody reads there what he wrote
    before the mirror holds it, and what the mirror lacks, or gives too late, the primary answers.
    Whoever begins to swap the sides, or rehearses that, ends the share.
    """
    from migrator import commands
    from migrator.render.runs import answer_lines

    if stale is not None and share is None:
        raise Usage("--stale goes with --share: how many reads are to be as old")
    with options.project() as project:
        told = commands.reads(project, revision, share, stale)
    if options.json:
        tell_json(told)
        return
    old = f", no older than {told.stale:g} s" if told.share else ""
    tell(f"{told.revision}: the mirror may answer {told.share:.2%} of gateways' reads{old}")
    if told.gateways is not None and told.gateways.reads:
        for line in answer_lines(told.gateways):
            tell(f"  {line}")
