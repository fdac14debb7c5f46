"""Where text leaves the program: escaped, coloured on terminals, and never in the way.

A reader that goes away (``migrator plan | head``) ends the printing and not the work.
"""

from __future__ import annotations

import json
import os
import select
import sys
from collections.abc import Iterable
from typing import TextIO

import click

from migrator.errors import MigratorError
from migrator.render.text import Line, first_line, shown, shown_json

# The numbers of streams whose readers have gone away.
_unread: set[int] = set()
_STYLES = {
    "bold": {"bold": True},
    "dim": {"dim": True},
    "green": {"fg": "green"},
    "red": {"fg": "red"},
    "yellow": {"fg": "yellow"},
}


def prepare() -> None:
    """Make the streams take any text: what the terminal's encoding lacks is escaped. One that the
    caller has closed is there, and goes nowhere."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            # It takes the lowest number that is free, which is the stream's own: else that would go
            # to the next file that is opened, a database perhaps.
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def tell(*lines: Line | str, to_stderr: bool = False) -> None:
    """Print lines for people."""
    stream = sys.stderr if to_stderr else sys.stdout
    coloured = stream.isatty() and "NO_COLOR" not in os.environ
    for line in lines:
        text, style = (line, "") if isinstance(line, str) else line
        text = shown(text)
        _write(stream, (click.style(text, **_STYLES[style]) if style and coloured else text))  # type: ignore[arg-type]


def tell_all(lines: Iterable[Line | str]) -> None:
    """Print lines as they come."""
    for line in lines:
        tell(line)


def tell_json(value: object, *, one_line: bool = False) -> None:
    """Print a result as JSON. Structs become objects of their fields."""
    import msgspec

    plain = msgspec.to_builtins(value, enc_hook=str)
    _write(
        sys.stdout,
        shown_json(json.dumps(plain, indent=None if one_line else 1, ensure_ascii=False)),
    )


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text + "\n")
        stream.flush()
    except BrokenPipeError:
        _unread.add(stream.fileno())
        silence(stream)


def is_unread() -> bool:
    """Whether standard output is a pipe whose reader has gone away."""
    try:
        number = sys.stdout.fileno()
    except (OSError, ValueError):
        return False  # it is no file
    poll = select.poll()
    poll.register(number, 0)
    return number in _unread or any(event & select.POLLERR for _, event in poll.poll(0))


def silence(stream: TextIO) -> None:
    """Have what is written from here on, also at exit, go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def tell_error(error: MigratorError, *, as_json: bool) -> None:
    """Show an error: one line of what and where, then what to do next."""
    if as_json:
        from migrator.cli.results import Error

        what = first_line(error.what)
        tell_json(
            Error(
                error=what, where=error.where, hint=error.hint, exit_code=error.exit_code,
                kind=error.word,
            )
        )  # fmt: skip
        return
    tell(Line(error_line(error), "red"), *error.hint.splitlines(), to_stderr=True)


def error_line(error: MigratorError) -> str:
    """``failed: docs:games: it is full``, on one line."""
    where = f"{error.where}: " if error.where else ""
    what = first_line(error.what)
    return what if what.startswith(error.word) else f"{error.word}: {where}{what}"
