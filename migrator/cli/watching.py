"""``status --watch``: in its place on a terminal, else a line for each change."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING

from migrator.cli.options import Options
from migrator.cli.output import is_unread, tell, tell_json
from migrator.errors import Interrupted
from migrator.render.text import Line, shown
from migrator.render.watching import change_line, watched_lines

if TYPE_CHECKING:
    from rich.text import Text

    from migrator.commands import Watched


def look_on(options: Options, revision: str | None, every: float) -> None:
    """Show where runs stand, again and again. Raises Interrupted."""
    from migrator import commands

    with options.project() as project, _ctrl_c_ends():
        # Who reads it may have met what it looked for: nobody is there to end this then.
        looks = takewhile(lambda _: not is_unread(), commands.watch(project, revision, every=every))
        if options.json:
            for found in looks:
                for each in found:
                    tell_json(each, one_line=True)
        elif sys.stdout.isatty():
            _in_place(options, looks)
        else:
            _each_change(options, looks)


@contextmanager
def _ctrl_c_ends() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("stopped looking; the runs go on") from None


def _each_change(options: Options, looks: Iterable[Sequence[Watched]]) -> None:
    last: dict[str, str] = {}
    for number, found in enumerate(looks):
        if not found and not number:
            for line in watched_lines(found, options.complete):
                tell(line)
        for each in found:
            changed, line = change_line(each)
            if last.get(each.status.run) != changed:
                last[each.status.run] = changed
                tell(line)


def _in_place(options: Options, looks: Iterable[Sequence[Watched]]) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(no_color="NO_COLOR" in os.environ, highlight=False)
    with Live(console=console, auto_refresh=False) as live:
        for found in looks:
            live.update(_text(watched_lines(found, options.complete)), refresh=True)


def _text(lines: Iterable[Line]) -> Text:
    from rich.text import Text

    return Text("\n").join(Text(shown(line.text), style=line.style) for line in lines)
