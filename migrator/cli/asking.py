"""Questions to a person, and the refusal to go on where nobody can answer."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from migrator.cli.options import Options
from migrator.errors import Refused, Usage
from migrator.render.text import shown


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
