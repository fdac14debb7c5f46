"""Changing fields of a block where they lie, in one request: a script, or nothing is done.

What the script does not take (a value that needs a note or that another key would hold, a server
that runs none) is done by a look and a MULTI. What both leave is for an exchange, which also tells
what is wrong: a block that is not there, or can't be read.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from migrator.errors import DoesNotFit, MigratorError
from migrator.model.block import Aggregate, Block, Patch, cut
from migrator.model.diff import entry_changes
from migrator.model.json_text import UNFIT, to_json
from migrator.model.path import escape
from migrator.model.rules import CorruptBlock, assemble
from migrator.model.value import INT64_MAX, INT64_MIN, Record, Value, has_utf8
from migrator.stores.redis import codec, edge, names, scripts
from migrator.stores.redis.forms import Form, HashForm, Raw, unreadable
from migrator.stores.redis.keyed import KeysForm
from migrator.stores.redis.names import SIDE, Damaged
from migrator.stores.redis.native import NativeForm
from migrator.stores.redis.scripts import Script
from migrator.stores.redis.wire import Arg, Command, Reply, Wire

# So many fields are set at once: Lua has no room for any number of arguments.
_MOST = 100
# A value over this may not go into a command; an exchange tells.
_ROOM = 256 * 1024 * 1024
_LISTS = {"list", "list of json"}
_HASHES = {"hash", "hash of json"}


def _hash_of_json(held: Reply) -> Record:
    values = codec.from_jsons(held[1::2])
    return dict(zip(map(names.foreign_name, held[::2]), values, strict=True))


# What the script has taken for JSON is decoded at once.
_QUICK: dict[str, Callable[[Reply], Any]] = {
    "hash of json": _hash_of_json,
    "list of json": codec.from_jsons,
}


class _Amender:
    """What the amenders of all forms share."""

    def __init__(self, wire: Wire, script: Script) -> None:
        self._wire = wire
        self._script = script
        self._may = True
        self._between = secrets.token_hex(6).encode()

    def _is_one(self, set_: Mapping[str, Value], append: Mapping[str, Value]) -> bool:
        """Whether it is a change by one command."""
        if not self._may or len(set_) > _MOST:
            return False
        return len(append) == 1 if not set_ else not append

    def _ask(self, keys: Sequence[bytes], *change: Arg) -> Reply:
        """What lay there before a change; None where nothing was done."""
        reply = self._wire.evaluate(self._script, keys, (self._between, *change))
        if isinstance(reply, Exception):
            # Its one write is the last that it does. Who may not run it need not ask again.
            self._may = not edge.forbidden(reply)
            return None
        return reply


class NativeAmender(_Amender):
    """Sets fields of the record's hash, or adds to a part that is a list."""

    def __init__(self, wire: Wire, form: NativeForm, script: Script) -> None:
        super().__init__(wire, script)
        self._form = form
        self._lead = form.parts[0]
        self._is_json = self._lead.type.name == "hash of json"
        self._parts = {part.field: (at, part) for at, part in enumerate(form.parts, 1)}
        self._reads: list[Callable[[Reply], Any]] = [
            _QUICK.get(part.type.name, part.type.copy) for part in form.parts
        ]

    def amend(
        self, id: Value, set_: Mapping[str, Value], append: Mapping[str, Value]
    ) -> Block | None:
        if not self._is_one(set_, append):
            return None
        try:
            change = self._setting(id, set_) if set_ else self._adding(id, append)
            if change is None:
                return None
            key = self._form.key(id)
        except DoesNotFit:
            return None
        keys = self._form.keys(key)
        held = self._ask(keys, *change)
        if held is None:
            return None
        *held, ends = held
        try:
            record = self._record(held)
        except (ValueError, RecursionError) as error:  # the script is sure of more than there is
            raise unreadable(names.shown(key), error, self._wire.where) from None
        for name, value in set_.items():
            record[name] = value
        for name, item in append.items():
            record[name] = [*record[name], item]  # type: ignore[misc]
        return Block(id, self._form.rules.partition(record), None if ends < 0 else ends)

    def _record(self, held: Sequence[Reply]) -> Record:
        record: Record = {}
        for part, read, of_part in zip(self._form.parts, self._reads, held, strict=True):
            if not part.field:
                record.update(read(of_part))
            elif of_part is not None:
                record[part.field] = read(of_part)
        return record

    def _setting(self, id: Value, fields: Mapping[str, Value]) -> tuple[Arg, ...] | None:
        if self._lead.field or self._lead.type.name not in _HASHES:
            return None
        if any(name in self._parts or not has_utf8(name) for name in fields):
            return None
        if self._is_json and all(map(_is_sure, fields.values())):
            # ``putting`` looks at what comes back of others.
            return 1, "HSET", *(x for n, value in fields.items() for x in (n, to_json(value)))
        ((command, *pairs),) = self._form.putting(id, self._lead, dict(fields))
        return 1, command, *pairs

    def _adding(self, id: Value, append: Mapping[str, Value]) -> tuple[Arg, ...] | None:
        ((name, item),) = append.items()
        at, part = self._parts.get(name, (0, self._lead))
        if not at or part.type.name not in _LISTS:
            return None
        ((command, *items),) = self._form.putting(id, part, [item])
        return at, command, *items


class HashAmender(_Amender):
    """Sets entries that are fields of the record, or adds to a list of it: an entry, or in one."""

    def __init__(self, wire: Wire, form: HashForm) -> None:
        super().__init__(wire, scripts.HASH)
        self._form = form

    def amend(
        self, id: Value, set_: Mapping[str, Value], append: Mapping[str, Value]
    ) -> Block | None:
        if not self._is_one(set_, append):
            return None
        change = self._setting(set_) if set_ else self._adding(append)
        if change is None:
            return None
        try:
            key = self._form.key(id)
        except DoesNotFit:
            return None
        reply = self._ask([key], *change)
        if reply is None:
            return None
        held, ends = reply
        fields = dict(zip(held[::2], held[1::2], strict=True))
        raw = Raw(key, fields, fields.pop(SIDE), None if ends < 0 else ends, 0)
        block = self._form.readable(id, raw)
        block.entries.update(set_)
        for name, item in append.items():
            if change[0] == "field":
                block.entries[name] = [*block.entries[name], item]  # type: ignore[misc]
            else:
                places = (f"{name}[{at}]" for at in count())
                block.entries[next(x for x in places if x not in block.entries)] = item
        return block

    def _setting(self, fields: Mapping[str, Value]) -> tuple[Arg, ...] | None:
        change: list[Arg] = ["set"]
        for name, value in fields.items():
            data = _unnoted(value)
            if data is None or not _is_simple(name) or not self._form.rules.takes_whole(name):
                return None
            change += (name, data)
        return tuple(change)

    def _adding(self, append: Mapping[str, Value]) -> tuple[Arg, ...] | None:
        ((name, item),) = append.items()
        rules = self._form.rules
        if not _is_simple(name):
            return None
        if rules.takes_elements(name):
            data = _unnoted(item)
            return None if data is None else ("element", name, data)
        data = _unnoted([item]) if rules.takes_whole(name) else None
        return None if data is None else ("field", name, data[1:-1])


class WatchingAmender:
    """Looks at a block of any form, and changes it unless somebody was faster: two requests."""

    def __init__(self, wire: Wire, form: Form) -> None:
        self._wire = wire
        self._form = form
        self._apart = isinstance(form, (HashForm, KeysForm))

    def amend(
        self, id: Value, set_: Mapping[str, Value], append: Mapping[str, Value]
    ) -> Block | None:
        try:
            key = self._form.key(id)
        except DoesNotFit:
            return None
        with self._wire.watching(*self._form.keys(key)) as session:
            (found,) = self._form.read([key], session.run)
            if not isinstance(found, Raw):
                return None
            try:
                held = self._form.block(id, found)
                after = self._after(held, set_, append)
                commands = [] if after is None else self._commands(found, held, after)
            except (Damaged, CorruptBlock, MigratorError):
                return None
            done = after is not None and (not commands or session.commit(commands) is not None)
            return after if done else None

    def _after(
        self, held: Block, set_: Mapping[str, Value], append: Mapping[str, Value]
    ) -> Block | None:
        """The block with fields set and elements added; None where there is no list for one."""
        record = {**assemble(held.entries), **set_}
        for name, item in append.items():
            there = record.get(name)
            if type(there) is not list:
                return None
            record[name] = [*there, item]
        return cut(Aggregate(held.id, record, held.expires), self._form.rules)

    def _commands(self, raw: Raw, held: Block, after: Block) -> Sequence[Command]:
        if not self._apart:
            return self._form.replacing(raw.key, raw, self._form.encode(after))
        changes = entry_changes(held.entries, after.entries)
        new = {path: after.entries[path] for path in (*changes.added, *changes.changed)}
        return self._form.patching(raw.key, Patch(held.id, new, changes.removed), raw)


def _is_sure(value: Value) -> bool:
    """Whether JSON is sure to give a value back as it is."""
    kind = type(value)
    if kind is int:
        return INT64_MIN <= value <= INT64_MAX  # type: ignore[operator]
    return kind is bool or value is None


def _is_simple(name: str) -> bool:
    """Whether an entry of this name is called so itself."""
    if not name or not has_utf8(name):
        return False
    return escape(name) == name and names.field_of(name) == name.encode()


def _unnoted(value: Value) -> bytes | None:
    """The bytes of an entry; None for one that needs a note, or does not fit."""
    try:
        data, note = codec.encode(value)
    except UNFIT:
        return None
    return data if note is None and len(data) < _ROOM else None


def amender_of(wire: Wire, form: Form) -> NativeAmender | HashAmender | None:
    """What changes fields where they lie; None for a form whose blocks are changed whole."""
    if isinstance(form, HashForm):
        return HashAmender(wire, form)
    if isinstance(form, NativeForm):
        named = {part.field: part.type.name for part in form.parts}
        script = scripts.of_parts(named) if all(map(has_utf8, named)) else None
        return None if script is None else NativeAmender(wire, form, script)
    return None
