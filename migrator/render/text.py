"""The small change of text for people: lines, sizes, durations, and what must be escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

Style = Literal["", "bold", "dim", "green", "red", "yellow"]


class Line(NamedTuple):
    """One line for people. ``text`` may hold anything: it is escaped when it is printed."""

    text: str = ""
    style: Style = ""


# Control characters (C0, DEL, C1), what turns the direction of text or breaks a line, and
# surrogates: data must not steer a terminal or hide a part of a line.
_STEERING = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff"
_UNSHOWN = re.compile(f"[{_STEERING}\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


def shown(text: str) -> str:
    """A text that stays on one line and does nothing to a terminal."""
    return _UNSHOWN.sub(lambda m: _SHORT.get(m[0]) or _escape(m[0]), text)


def _escape(char: str) -> str:
    return f"\\x{ord(char):02x}" if ord(char) < 0x100 else f"\\u{ord(char):04x}"


def shown_json(text: str) -> str:
    """JSON text with the same characters as JSON escapes; its own line breaks stay."""
    return _UNSHOWN.sub(lambda m: "\n" if m[0] == "\n" else f"\\u{ord(m[0]):04x}", text)


def size(number: float) -> str:
    """Bytes for people, in powers of 1,000: ``812 MB``."""
    if number < 10_000:
        return f"{number:,.0f} B"
    for unit in ("KB", "MB", "GB"):
        number /= 1000
        if number < 999.5:
            return f"{number:.3g} {unit}"
    return f"{number / 1000:,.3g} TB"


def duration(seconds: float) -> str:
    """A time span for people, in its two largest units: ``1 min 40 s``."""
    if seconds < 0.95:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    for (length, name), (below, lower) in pairwise(units):
        if whole >= length:
            rest = whole % length // below
            return f"{whole // length} {name}" + (f" {rest} {lower}" if rest else "")
    return f"{whole} s"


def some(number: int, word: str) -> str:
    """``1 move``, ``2,000 moves``."""
    return f"{number:,} {word}" + ("" if number == 1 else "s")


def blocks(number: int) -> str:
    """``1 block``, ``2,000 blocks``."""
    return some(number, "block")


def columns(rows: Iterable[Sequence[str]], *, indent: int = 0, gap: int = 2) -> Iterator[str]:
    """Rows as aligned columns; the last column is not padded."""
    table = [[shown(cell) for cell in row] for row in rows]
    width = max((len(row) for row in table), default=0)
    widths = [max((len(row[i]) for row in table if i < len(row)), default=0) for i in range(width)]
    for row in table:
        cells = [cell.ljust(widths[i]) for i, cell in enumerate(row)]
        yield (" " * indent + (" " * gap).join(cells)).rstrip()


def places(names: Sequence[str], one: str, several: str) -> str:
    """``docs:games is``, ``docs:games, docs:players are``."""
    return f"{', '.join(names)} {one if len(names) == 1 else several}"


def first_line(text: str) -> str:
    """The text on one line: drivers break theirs."""
    return " ".join(part.strip() for part in text.splitlines() if part.strip())
