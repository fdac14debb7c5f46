"""Escaping by ``%``: for names and keys of stores that can't take every character.

An escape is ``%`` and two hexadecimal digits, or ``%U`` and four; the empty text is a lone
``%``. What is escaped is a pattern of the caller's; ``%`` itself must be in it wherever the
escaped form alone tells what was written.
"""

from __future__ import annotations

import re

_ESCAPE = re.compile("%([0-9A-F]{2})|%U([0-9A-F]{4})|%$")


def escape(text: str, odd: re.Pattern[str]) -> str:
    """The text with each character that ``odd`` matches escaped; characters below U+10000."""
    return odd.sub(lambda m: _escaped(m[0]), text) or "%"


def escape_first(text: str) -> str:
    """The text with its first character escaped whatever it is, so that it is no longer taken
    for the name it was."""
    return _escaped(text[0]) + text[1:]


def unescape(text: str) -> str:
    """The text behind its escaped form; what is no escape stays as it is."""
    return _ESCAPE.sub(lambda m: chr(int(m[1] or m[2], 16)) if m[1] or m[2] else "", text)


def looks_escaped(text: str) -> bool:
    """Whether a text could be taken for the escaped form of another."""
    return _ESCAPE.search(text) is not None


def _escaped(char: str) -> str:
    code = ord(char)
    return f"%{code:02X}" if code < 256 else f"%U{code:04X}"
