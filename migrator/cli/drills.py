"""drill: the whole life of a live move, rehearsed."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from migrator.cli.asking import tell_unknown_codes
from migrator.cli.options import Number, Options, global_options, pass_options, swap_options
from migrator.cli.output import tell, tell_all, tell_json
from migrator.cli.signals import stoppable
from migrator.errors import Mismatch, Usage

if TYPE_CHECKING:
    from migrator.commands import Project, SwapTerms
    from migrator.drill.history import Act
    from migrator.model.plan import Plan

_MIX = "put=2,update=3,append=3,delete=1,get=3"


@click.command("drill")
@click.argument("plan", metavar="PLAN|REVISION")
@click.option("--writers", type=click.IntRange(1, 64), default=2, show_default=True,
              help="Processes that write.")  # fmt: skip
@click.option("--rate", type=Number(0, min_open=True), default=50.0, show_default=True,
              help="Calls a second, of all writers together.")  # fmt: skip
@click.option("--mix", default=_MIX, show_default=True, metavar="CALL=PART,...",
              help="How much of which call.")  # fmt: skip
@click.option("--keys", type=click.IntRange(1, 10_000), default=20, show_default=True,
              help="Keys of each writer.")  # fmt: skip
@click.option("--skew", type=Number(0, 10), default=1.0, show_default=True,
              help="Exponent of Zipf's law for the keys; 0 for all alike.")  # fmt: skip
@click.option("--replay", multiple=True, metavar="FILE",
              type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Replay what gateways recorded, in the place of --rate, --mix, --keys and "
              "--skew; may be repeated.")  # fmt: skip
@click.option("--speed", type=Number(0, min_open=True), default=1.0, show_default=True,
              help="So many times the rate of the recording.")  # fmt: skip
@click.option("--seconds", type=Number(0, min_open=True),
              help="Of traffic between two steps; default: 5, or a fifth of the recording if that "
              "is longer.")  # fmt: skip
@click.option("--minimum", type=click.IntRange(1), default=20, show_default=True,
              help="Acknowledged calls of each kind, without which it does not pass.")  # fmt: skip
@click.option("--lease", type=Number(0.5), default=5.0, show_default=True,
              metavar="SECONDS",
              help="Of a writer's gateway: a swap waits for that of a killed one.")  # fmt: skip
@click.option("--seed", type=int, help="Choose as a drill before did.")
@click.option("--kills", type=click.IntRange(0, 5), default=5, show_default=True,
              help="How often mirror or writers are killed.")  # fmt: skip
@click.option("--finish", is_flag=True,
              help="End by finish, source kept; default: roll back and abort.")  # fmt: skip
@click.option("--accept", multiple=True, metavar="CODE", help="Accept a finding of the plan.")
@swap_options
@global_options
@pass_options
def drill_command(
    options: Options, plan: str, writers: int, rate: float, mix: str, keys: int, skew: float,
    replay: tuple[Path, ...], speed: float, seconds: float | None, minimum: int, seed: int | None,
    kills: int, lease: float, finish: bool, accept: tuple[str, ...], swap: SwapTerms,
) -> int:  # fmt: skip
    """Rehearse the whole life of a live move where the settings say staging = true.

    Writers go through the gateway, under keys of their own that are removed at the end; what they
    do is made up, or replayed. The move is copied, compared, cut over, rolled back and cut over
    again, while mirror and writers are killed. Exits with 4 where a write that was acknowledged is
    missing or there twice, where both sides differ, or where too little was written to tell. Writes
    drills/RUN.json and RUN.html.
    """
    from migrator import commands
    from migrator.cli.plans import nearest
    from migrator.drill import Drill, DrillTerms
    from migrator.drill.drill import refuse_outside_staging
    from migrator.drill.replay import read
    from migrator.render.drill import drill_lines
    from migrator.render.runs import step

    _refuse_unused(bool(replay))
    terms = DrillTerms(
        writers=writers, rate=rate, keys=keys, mix=_mix(mix), skew=skew, seconds=seconds,
        minimum=minimum, seed=seed, kills=kills, finish=finish, lease=lease,
        apply=commands.Terms(accept=accept, swap=swap), speed=speed,
    )  # fmt: skip

    def told(stage: str) -> None:
        if not options.json:
            tell(step("drill", stage, "dim"), to_stderr=True)

    with options.project() as project:
        refuse_outside_staging(project)
        if replay:
            terms = dataclasses.replace(terms, replay=read(replay))
        made = _plan(project, plan)
        tell_unknown_codes(made, accept)
        with stoppable() as stop:
            drill = Drill(project, made, terms, told=told, stop=stop)
            report = drill.run()
        page = drill.folder / f"{report.run}.html"
    if options.json:
        tell_json(report)
    else:
        tell_all(drill_lines(report))
        tell("", str(nearest(page)))
    return 0 if report.passed else Mismatch.exit_code


def _refuse_unused(replays: bool) -> None:
    """Raise Usage for an option that would have no effect."""
    context = click.get_current_context()
    unused = ("rate", "mix", "keys", "skew") if replays else ("speed",)
    for name in unused:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            told = "a recording says that itself" if replays else "it is for --replay"
            raise Usage(f"--{name}: {told}", hint="leave it out")


def _plan(project: Project, name: str) -> Plan:
    from migrator import commands

    if commands.is_plan_file(name):
        return commands.show(project, name)
    return commands.plan(project, project.revision_id(name), live=True)


def _mix(text: str) -> dict[Act, float]:
    """``put=2,get=1`` as the parts of calls."""
    from migrator.drill.history import Act

    found: dict[Act, float] = {}
    for word in text.split(","):
        name, _, part = word.strip().partition("=")
        try:
            found[Act(name)] = float(part)
        except ValueError:
            raise Usage(
                f"--mix: {word.strip()!r} is no part of a mix", hint=f"for example:  --mix {_MIX}"
            ) from None
    parts = found.values()
    if found.get(Act.PUT, 0) <= 0 or not all(0 <= part < math.inf for part in parts):
        raise Usage("--mix: puts have to be in it, and each part is a number from 0 on")
    return found
