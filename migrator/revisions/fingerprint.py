"""A stable digest of what a script declares: its moves, not its words or comments."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from enum import Enum

from migrator.model import canonical
from migrator.model.move import Move
from migrator.ports import Json
from migrator.revisions.script import Revision

_NONE = object()


def fingerprint(revision: Revision, moves: Sequence[Move] | None = None) -> str:
    """The digest of a revision's moves (``moves``: with their sources filled in).

    Where a script declares something of its own making, such as a function, what that does is
    in the source text alone, and the whole text counts.
    """
    declared = revision.moves if moves is None else moves
    form: Json
    try:
        form = [to_json(move) for move in declared]
    except TypeError:
        form = {"source": revision.digest}
    data = json.dumps([revision.id, form], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(data.encode()).hexdigest()


def to_json(value: object) -> Json:
    """The canonical JSON of what a script declares: dataclasses by field name, values by their
    canonical form. Raises TypeError for anything else, such as a function."""
    if value is None or type(value) in (str, bool):
        return value
    if isinstance(value, Enum):
        return {"enum": f"{type(value).__name__}.{value.name}"}
    if isinstance(value, Mapping):
        pairs = [[to_json(name), to_json(item)] for name, item in value.items()]
        return {"map": sorted(pairs, key=lambda pair: json.dumps(pair[0], sort_keys=True))}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, set | frozenset):
        return {"set": sorted((to_json(item) for item in value), key=json.dumps)}
    try:
        return {"value": canonical.encode(value).hex()}
    except TypeError:
        pass
    if dataclasses.is_dataclass(value) and not isinstance(value, type) and _is_ours(value):
        forms = {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
        defaults = {f.name: _default(f) for f in dataclasses.fields(value)}
        # What is as by default is left out, so that plans outlive a new option of a release.
        told = {name: form for name, form in forms.items() if form != defaults[name]}
        return {type(value).__name__: told}
    raise TypeError(f"{type(value).__name__} has no canonical JSON")


def _is_ours(value: object) -> bool:
    """Whether a class of ours says what a value does; what another's does is in its text."""
    return type(value).__module__.partition(".")[0] == "migrator"


def _default(field: dataclasses.Field[object]) -> Json:
    if field.default is not dataclasses.MISSING:
        return to_json(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return to_json(field.default_factory())
    return _NONE
