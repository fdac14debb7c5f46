"""What is told of a text that may hold a value which must never be shown.

Stores and drivers give a value's text where it does not fit, in quotes or, for numbers, times and
bytes, as words with digits. Of quotes all from the first to the last goes, since a server quotes
values that hold quotes, and also one that never ends, since only its first line is told.
"""

from __future__ import annotations

import re

_VALUES = re.compile(r"""(?<!\w)b?(['"])(?:.*\1|.*)|[\w.,:+-]*\d[\w.,:+-]*""", re.DOTALL)


def masked(text: str) -> str:
    """The text with ``***`` for all in it that may be a value."""
    return _VALUES.sub("***", text)
