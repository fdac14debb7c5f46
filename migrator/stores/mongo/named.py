"""Whose keys the ``_id``s in a change stream are: some of them carry what BSON has no kind for.

An event tells an ``_id`` as it lies, and what it stands for lies in the document's side field. So
the documents are asked; of one that has gone, what others of its collection carry tells it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from migrator.model.canonical import encode
from migrator.model.path import child
from migrator.model.value import Value
from migrator.stores.mongo import carry, codec, keys
from migrator.stores.mongo.carry import Pairs
from migrator.stores.mongo.stored import SIDE, is_side

Ask: TypeAlias = Callable[[Sequence[keys.Key]], Mapping[keys.Key, Pairs]]
_Form: TypeAlias = tuple[tuple[str, str], ...]

_SIDE_BYTES = SIDE.encode()
# Dates, times and numbers that are carried by text begin like this.
_LIKE_A_DATE = re.compile("[-0-9]")
_BY_TEXT = (
    "date", "timestamp", "local timestamp", "time", "integer", "decimal", "timestamp ns",
    "local timestamp ns", "date days", "time ns",
)  # fmt: skip
# Some of their kinds BSON holds, and carries what is finer or larger.
_BY_TEXT_TOO = ("timestamp", "integer", "decimal")
_MOST_GUESSES = 64
_MOST_FORMS = 100


class Named:
    """The keys of one collection; ``ask`` gives what is noted of the ``_id``s of documents that
    are there."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._forms: dict[_Form, None] = {}

    def learn(self, pairs: Pairs) -> None:
        """Remember how a key of this collection was carried."""
        if len(self._forms) < _MOST_FORMS:
            self._forms[tuple((path, tag) for path, tag in pairs)] = None

    def met(self, document: bytes) -> None:
        """Learn from a whole document, where an event brings one."""
        if _SIDE_BYTES in document:
            self.learn(pairs_in(document))

    def of(self, found: Iterable[keys.Key]) -> dict[keys.Key, list[Value]]:
        """What each of some ``_id``s stands for: one key, or what it may have been."""
        held = {key: keys.value_of(key) for key in found}
        asked = [key for key, value in held.items() if self._may_carry(value)]
        noted = self._ask(asked) if asked else {}
        for pairs in noted.values():
            self.learn(pairs)
        return {
            key: [value] if key not in asked
            else [carry.release(value, noted[key])] if key in noted
            else self._gone(value)
            for key, value in held.items()
        }  # fmt: skip

    def _may_carry(self, value: Value) -> bool:
        if type(value) is str:
            return any(self._forms) or _LIKE_A_DATE.match(value) is not None
        return type(value) in (dict, bytes)

    def _gone(self, held: Value) -> list[Value]:
        """What may have lain there: as others of its kind were carried, if any were met."""
        forms = itertools.chain.from_iterable(_alike(held, form) for form in self._forms)
        found: dict[bytes, Value] = {}
        for form in forms if self._forms else _guesses(held):
            released = _released(held, form)
            if released is not _NOT:
                found.setdefault(encode(released), released)
        return list(found.values()) or [held]


_NOT: Any = object()


def _released(held: Value, form: _Form) -> Value:
    """The key that would lie so, by what of a form fits; ``_NOT`` where none would."""
    copy = dict(held) if type(held) is dict else held
    released = carry.release(copy, [[path, tag] for path, tag in form])
    return released if carry.hold_id(released)[0] == held else _NOT


def _alike(held: Value, form: _Form) -> Iterator[_Form]:
    """A form, and those of keys of the same kinds of which BSON could not hold this one."""
    yield form
    told = {path for path, _ in form}
    parts = {child("", name): part for name, part in held.items()} if type(held) is dict else {}
    texts = [path for path, part in {"": held, **parts}.items() if type(part) is str]
    choices = itertools.product(
        *((None, *_BY_TEXT_TOO) if path not in told else (None,) for path in texts)
    )
    for tags in itertools.islice(choices, 1, _MOST_GUESSES):
        yield (*form, *((path, tag) for path, tag in zip(texts, tags, strict=True) if tag))


def _guesses(held: Value) -> Iterator[_Form]:
    yield ()
    if type(held) is str:
        yield from (((("", tag),)) for tag in _BY_TEXT)
    elif type(held) is dict and list(held) == [str(i) for i in range(len(held))]:
        texts = [name for name, part in held.items() if type(part) is str]
        choices = itertools.product((None, *_BY_TEXT), repeat=len(texts))
        for tags in itertools.islice(choices, _MOST_GUESSES):
            chosen = [(n, t) for n, t in zip(texts, tags, strict=True) if t is not None]
            yield (("", "list"), *chosen)


def pairs_in(document: bytes) -> Pairs:
    """What a document notes of its ``_id``."""
    side = codec.decode(document).get(SIDE)
    return carry.pairs_of(side.get("id")) if type(side) is dict and is_side(side) else []


__all__ = ["Named", "pairs_in"]
