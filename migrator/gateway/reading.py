"""Reads of a gateway: by the mirror where a share lets it answer, else by the primary."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

from migrator.gateway import changes
from migrator.gateway.found import Found, found_in
from migrator.gateway.opened import Opened, Sides
from migrator.model.block import has_ended, join, name
from migrator.model.path import lookup, parse_path
from migrator.model.value import Record, Value
from migrator.ports import Collection
from migrator.retry import Retry


def get(here: Opened, id: Value) -> Found | None:
    """The aggregate of a key, None where there is none."""
    standing = here.follower.standing
    sides, shared = here.sides(standing), here.mirrored.take(id)
    found = None
    if shared is not None:
        found = shared.ask(standing, sides, lambda mirror: _held(mirror, id), _version)
    if found is None:
        # What only the old side holds is read there, and that may fail for now as well.
        found = Retry(here.follower.terms.bound)(_read, sides, id)
        if shared := shared or here.mirrored.take(id):
            version = None if found is None else partial(_version, found)
            shared.answered(version, there=found is not None)
    here.shadows.offer(sides.key(id))
    return found


def get_entries(here: Opened, id: Value, paths: Sequence[str]) -> dict[str, Value] | None:
    """What lies at some access paths; None where there is no aggregate."""
    standing = here.follower.standing
    sides, where = here.sides(standing), name(here.cls, id)
    entries = None if sides.translates else _entries(sides.primary, paths, where)
    shared = here.mirrored.take(id)
    if entries is None or (shared is not None and shared.pinned):
        found = get(here, id)
        return None if found is None else _at(found.value, paths, where)
    given = None
    if shared is not None:
        given = shared.ask(standing, sides, lambda mirror: _held_at(mirror, id, paths, where))
    if given is None:
        wanted = list(dict.fromkeys(entries.values()))
        read = Retry(here.follower.terms.bound)(sides.primary.read_entries, id, wanted)
        given = None if read is None else _picked(read, entries, where)
        if shared := shared or here.mirrored.take(id):
            shared.answered(None, there=given is not None)
    here.shadows.offer(id)  # not translated: the primary's own key
    return given


# ---------------------------------------------------------------------- by the primary


def _read(sides: Sides, id: Value) -> Found | None:
    (block,) = sides.primary.read([sides.key(id)])
    return found_in(sides, block)


def _version(found: Found) -> str:
    return found.version


# ---------------------------------------------------------------------- by the mirror


def _held(mirror: Collection, id: Value) -> Found | None:
    """An aggregate as the mirror holds it, which speaks the application's shape."""
    (block,) = mirror.read([id])
    if block is None or has_ended(block.expires, time.time()):
        return None
    there = join(block)
    return Found(block.id, there.value, there.expires)


def _held_at(
    mirror: Collection, id: Value, paths: Sequence[str], where: str
) -> dict[str, Value] | None:
    """What lies at some access paths of an aggregate, as the mirror holds it."""
    entries = _entries(mirror, paths, where)
    if entries is None:
        found = _held(mirror, id)
        return None if found is None else _at(found.value, paths, where)
    read = mirror.read_entries(id, list(dict.fromkeys(entries.values())))
    return None if read is None else _picked(read, entries, where)


# ---------------------------------------------------------------------- what lies at paths


def _entries(side: Collection, paths: Sequence[str], where: str) -> dict[str, str] | None:
    """The entry that holds what lies at each path; None where only the aggregate tells."""
    rules = side.at.rules(side.cls)
    entries: dict[str, str] = {}
    for path in paths:
        entry = changes.entry_of(rules, path, where)
        if entry is None:
            return None
        entries[path] = entry
    return entries


def _picked(read: Mapping[str, Value], entries: Mapping[str, str], where: str) -> dict[str, Value]:
    """What lies at the paths, out of the entries that hold it."""
    given: dict[str, Value] = {}
    for path, entry in entries.items():
        if entry in read:
            # Below its entry a place has the rest of its path.
            rest = changes.steps_of(path, where)[len(parse_path(entry)) :]
            try:
                given[path] = lookup(read[entry], rest)
            except KeyError:
                continue
    return given


def _at(value: Record, paths: Sequence[str], where: str) -> dict[str, Value]:
    given: dict[str, Value] = {}
    for path in paths:
        try:
            given[path] = lookup(value, changes.steps_of(path, where))
        except KeyError:
            continue
    return given
