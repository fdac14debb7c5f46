"""The options that every command takes, before or after its name."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from migrator.cli import signals

if TYPE_CHECKING:
    from migrator.commands import Project

F = TypeVar("F", bound=Callable[..., Any])


@dataclass
class Options:
    """What holds for the whole call."""

    env: str | None = None
    config: str | None = None
    format: str = "text"
    log_level: str = "warning"
    log_format: str = "text"

    @property
    def json(self) -> bool:
        return self.format == "json"

    @property
    def again(self) -> str:
        """The options a follow-up command needs, as they were given: ``" --env staging"``."""
        given = (("--config", self.config), ("--env", self.env))
        return "".join(f" {name} {shlex.quote(v)}" for name, v in given if v is not None)

    def complete(self, text: str) -> str:
        """A hint with these options in the commands that it names.

        Without them a command at night could reach another environment.
        """
        return re.sub(r"\bmigrator (?=[a-z])", lambda _: f"migrator{self.again} ", text)

    def project(self) -> Project:
        """Open the project; to be used as a context."""
        from migrator.cli.logs import configure
        from migrator.commands import Project
        from migrator.state import Lease

        configure(self.log_level, self.log_format)
        Lease.deadly = signals.is_ours
        return Project(self.config, self.env)


def _keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Note an option on the call's Options; one given after the command wins."""
    options = context.ensure_object(Options)
    if value is not None and parameter.name is not None:
        setattr(options, parameter.name, value)


def global_options(command: F) -> F:
    """Add the options of every command."""
    levels = ["debug", "info", "warning", "error"]
    for decorate in reversed(
        [
            _option("--env", metavar="NAME", help="The environment of migrator.toml."),
            _option(
                "--config", metavar="FILE",
                help="The settings; default: the nearest migrator.toml here or above.",
            ),
            _option("--format", type=click.Choice(["text", "json"]), help="How results are told."),
            _option("--log-level", type=click.Choice(levels), help="What the log on stderr tells."),
            _option("--log-format", type=click.Choice(["text", "json"]), help="How it does."),
        ]
    ):  # fmt: skip
        command = decorate(command)
    return command


def _option(name: str, **more: Any) -> Callable[[F], F]:
    env = "MIGRATOR_" + name.removeprefix("--").upper().replace("-", "_")
    # `--format json` in the environment would change what scripts read without their knowing.
    envvar = None if name == "--format" else env
    return click.option(name, expose_value=False, callback=_keep, envvar=envvar, **more)


class Number(click.FloatRange):
    """A number within a range. Not NaN, which no bound keeps out, nor infinity: JSON has neither,
    and no clock can wait for them."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not finite.", param, ctx)
        return number


def address(
    context: click.Context, parameter: click.Parameter, text: str | None
) -> tuple[str, int] | None:
    """``[HOST:]PORT``; without a host nobody but this machine can ask."""
    if text is None:
        return None
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 65_536):
        raise click.BadParameter(f"{text!r} is no [HOST:]PORT", context, parameter)
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def swap_options(command: F) -> F:
    """Add the options of a swap of the sides of a live move; the command gets ``swap``."""

    @wraps(command)
    def with_terms(
        *args: Any,
        hook: str,
        gateways: bool,
        bound: float,
        lag: float,
        shadow_reads: int,
        why: str,
        **more: Any,
    ) -> Any:
        from migrator.commands import SwapTerms

        terms = SwapTerms(
            hook=hook, gateways=gateways, bound=bound, lag=lag, shadow_reads=shadow_reads, why=why
        )
        return command(*args, swap=terms, **more)

    made: Any = with_terms
    seconds = Number(0, min_open=True)
    for decorate in reversed(
        [
            click.option(
                "--why", metavar="TEXT", default="",
                help="Why something is accepted: a word for the record of the run.",
            ),
            click.option(
                "--hook", metavar="COMMAND", default="",
                help="Stops the applications' writes, and lets them go on: MIGRATOR_EVENT is "
                "fence, release or undo. An address (http://...) is posted the same as JSON.",
            ),
            click.option(
                "--gateways", is_flag=True,
                help="All applications write by the gateway: its holding is enough.",
            ),
            click.option(
                "--bound", type=seconds, default=5.0, show_default=True, metavar="SECONDS",
                help="For how long writes may be stopped before it is undone.",
            ),
            click.option(
                "--lag", type=seconds, default=0.5, show_default=True, metavar="SECONDS",
                help="How far the mirror may be behind before writes are stopped.",
            ),
            click.option(
                "--shadow-reads", type=click.IntRange(0), default=0, metavar="N",
                help="How many different keys of each class shadow reads must have found the "
                "same on both sides.",
            ),
        ]
    ):  # fmt: skip
        made = decorate(made)
    return cast("F", made)


def pass_options(command: F) -> F:
    """Hand the call's Options to a command as its first argument."""
    return click.make_pass_decorator(Options, ensure=True)(command)  # type: ignore[return-value]
