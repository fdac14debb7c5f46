"""The inner signal that a value can't be held by its column."""

from __future__ import annotations


class Unfit(Exception):
    """Why a value does not fit; ``path`` is where, below the column's own path."""

    def __init__(self, why: str, path: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.path = path
