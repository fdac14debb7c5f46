"""shadow: keys read on both sides of a live move, and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from migrator.cli.options import Number, Options, global_options, pass_options
from migrator.cli.output import tell, tell_all, tell_json
from migrator.cli.signals import stoppable
from migrator.errors import Failed, Interrupted, Mismatch, Usage

if TYPE_CHECKING:
    from migrator.commands import Shadowed


class _Share(click.ParamType):  # type: ignore[type-arg]
    """A share from 0 to 1, or in per cent."""

    name = "share"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text, percent = (value[:-1], 100) if value.endswith("%") else (value, 1)
        try:
            share = float(text) / percent
        except ValueError:
            self.fail(f"{value!r} is no share", param, ctx)
        if not 0 <= share <= 1:
            self.fail(f"{value} is not between 0 and 1", param, ctx)
        return share


SHARE = _Share()


@click.command("shadow")
@click.argument("revision")
@click.option("--sample", type=click.IntRange(1, 100_000), default=100, show_default=True,
              help="How many keys of each class are read.")  # fmt: skip
@click.option("--every", type=Number(0, min_open=True), metavar="SECONDS",
              help="Go on with other keys, so often, until the run ends.")  # fmt: skip
@click.option("--share", type=SHARE, metavar="SHARE",
              help="Have gateways make this share of their reads on both sides from now on, such "
              "as 0.01 or 1%; 0 for none.")  # fmt: skip
@global_options
@pass_options
def shadow_command(
    options: Options, revision: str, sample: int, every: float | None, share: float | None
) -> int:
    """Read keys of REVISION, a live move, on both sides, and compare and time the answers.

    The keys are taken from all over the primary. A key that lags behind is looked at again once
    the mirror holds what was written. Exits with 4 where a key differs, and names it with its
    paths; with 1 where a side could not be read. As JSON each round is a line with --every.

    With --share nothing is read here: gateways obey it when they renew their lease, and `status`
    tells what they found.
    """
    from migrator import commands
    from migrator.render.shadowing import shadow_lines

    if share is not None:
        if every is not None:
            raise Usage("--share is for gateways, --every for reads made here: say one of them")
        with options.project() as project:
            told = commands.shadow_share(project, revision, share)
        if options.json:
            tell_json(told)
        else:
            tell(f"{told.revision}: gateways make {share:.2%} of their reads on both sides")
        return 0
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
