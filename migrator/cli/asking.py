"""Questions to a person, the refusal to go on where nobody can answer, and odd answers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from migrator.cli.options import Options
from migrator.cli.output import tell
from migrator.errors import Refused, Usage
from migrator.render.text import Line, shown

if TYPE_CHECKING:
    from migrator.commands import Project
    from migrator.model.plan import Plan
    from migrator.state import Run


def need_terminal(options: Options, otherwise: str) -> None:
    """Raise Usage where nobody can answer; ``otherwise`` is the command that does not ask."""
    if options.json:
        raise Usage("with --format json nothing is asked", hint=f"say it at once:  {otherwise}")
    if not sys.stdin.isatty():
        raise Usage("there is no terminal to ask on", hint=f"say it at once:  {otherwise}")


def confirm(question: str) -> None:
    """Go on only with a yes. Raises Refused for a no."""
    if not click.confirm(shown(question), default=False, err=True):
        raise Refused("you said no; nothing was changed")


def choose(question: str, answers: Sequence[str]) -> str:
    """One of several answers."""
    return str(click.prompt(shown(question), type=click.Choice(answers), err=True))


def tell_unknown_codes(made: Plan, codes: Iterable[str]) -> None:
    """Tell of each code that accepts nothing of a plan."""
    from migrator.commands import unknown_codes

    for code in unknown_codes(made, codes):
        text = f"--accept {code}: the plan has no such finding to accept"
        tell(Line(text, "yellow"), to_stderr=True)


def tell_unknown_keys(project: Project, run: Run, keys: Iterable[str]) -> None:
    """Tell of each key that accepts nothing of a run."""
    from migrator.commands import unknown_keys

    for key in unknown_keys(project, run, keys):
        text = f"--accept-key {key}: no block of that name is set aside"
        tell(Line(text, "yellow"), to_stderr=True)
