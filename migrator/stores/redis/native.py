"""The form ``native``: keys as an application of Redis lays them out itself.

Each part of an aggregate lies under a key of its own and as a type of Redis: the fields of the
record in a hash, ``rounds`` as a list, ``tags`` as a set. Nothing is noted aside; a value that
such a key would not give back exactly does not fit. Redis has no empty list, set, sorted set or
stream: where the key is absent, the part is the empty one.

The deadlines of single fields of a hash are a part, too, under the key of that hash. Their fields
must be named to ask for them, so the hash is looked at just before, and again where it had others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from migrator.errors import DamagedBlock, Refused, Transient
from migrator.model.block import Block
from migrator.model.canonical import equal
from migrator.model.ending import Ending
from migrator.model.json_text import UNFIT
from migrator.model.path import escape
from migrator.model.rules import CorruptBlock, Representation, assemble
from migrator.model.value import Record, Value
from migrator.stores.redis import names
from migrator.stores.redis.forms import MEND, TRIES, Encoded, Found, OneKey, Raw, Run, glob
from migrator.stores.redis.names import Damaged
from migrator.stores.redis.types import DEADLINES, TYPES, Type
from migrator.stores.redis.wire import Command, Reply, Unit, Wire, slot_of

_PLACE = re.compile(r"\{\{|\}\}|\{id\}|[{}]")
_ROOT = {"hash", "hash of json", "json"}
_HASHES = {"hash", "hash of json"}


@dataclass(frozen=True)
class Part:
    """A field of the aggregate (the empty name: all that no other part has) and its key."""

    field: str
    before: bytes
    after: bytes
    type: Type

    def key(self, id: bytes) -> bytes:
        return self.before + id + self.after

    def id(self, key: bytes) -> bytes | None:
        """The identifier in a key of this part; None where it is no key of it."""
        fits = key.startswith(self.before) and key.endswith(self.after)
        if not fits or len(key) < len(self.before) + len(self.after):
            return None
        return key[len(self.before) : len(key) - len(self.after)]


def parts_of(where: str, options: Mapping[str, object]) -> list[Part]:
    """The parts that a layout declares, the one that blocks are listed by first.

    Raises Refused for what is none.
    """
    declared = options.get("keys")
    if options.keys() != {"keys"} or not isinstance(declared, Mapping) or not declared:
        raise Refused(
            f"{where}: layout native wants the keys of each part",
            hint='native("user:{id}", "hash", sessions=("user:{id}:sessions", "set"))',
        )
    parts = []
    for field, given in declared.items():
        match given:
            case [str(template), str(type_)] if type_ in TYPES:
                parts.append(Part(str(field), *_template(where, template), TYPES[type_]))
            case _:
                raise Refused(
                    f"{where}: {field or 'the record'} wants a key and a type, not {given!r}",
                    hint=f"types: {', '.join(TYPES)}",
                )
    parts.sort(key=lambda part: (part.type.name == DEADLINES, part.field != ""))
    if parts[0].field == "" and parts[0].type.name not in _ROOT:
        raise Refused(
            f"{where}: a {parts[0].type.name} can't hold the fields of the record",
            hint=f"use {', '.join(sorted(_ROOT))}, or give the part a field",
        )
    for part in parts:
        if part.type.name == DEADLINES and (not part.field or _hash_of(parts, part) is None):
            raise Refused(
                f"{where}: {part.field or 'the record'} are deadlines of no hash",
                hint="give them a field, and the key of one part that is a hash",
            )
    return parts


def _hash_of(parts: Sequence[Part], of: Part) -> Part | None:
    """The one hash under the key of a part of deadlines."""
    place = (of.before, of.after)
    here = [p for p in parts if (p.before, p.after) == place and p.type.name in _HASHES]
    return here[0] if len(here) == 1 else None


def _template(where: str, template: str) -> tuple[bytes, bytes]:
    pieces = [""]
    at = 0
    for found in _PLACE.finditer(template):
        pieces[-1] += template[at : found.start()]
        at = found.end()
        if found[0] == "{id}":
            pieces.append("")
        elif len(found[0]) == 2:
            pieces[-1] += found[0][0]
        else:
            pieces += ["", ""]  # no such placeholder
    pieces[-1] += template[at:]
    if len(pieces) != 2:
        raise Refused(
            f"{where}: {template!r} is no key: it wants {{id}} once",
            hint="a brace itself is written twice: {{user:{id}}}:sessions",
        )
    return pieces[0].encode(), pieces[1].encode()


class NativeForm(OneKey):
    """Several keys for a block, each of a type of its own."""

    def __init__(
        self, wire: Wire, cls: str, where: str, rules: Representation, parts: Sequence[Part]
    ) -> None:
        super().__init__(wire, cls, "", rules)
        self._lead, *self._others = parts
        least = len(self._lead.before) + len(self._lead.after)
        # What is a key of one of these is none of the first.
        self._narrower = [p for p in self._others if len(p.before) + len(p.after) > least]
        self.parts = parts
        # Parts of deadlines and the hashes that they are of.
        self._deadlines = [
            (part, of)
            for part in parts
            if part.type.name == DEADLINES and (of := _hash_of(parts, part)) is not None
        ]
        self.type = self._lead.type.redis
        self.pattern = glob(self._lead.before) + b"*" + glob(self._lead.after)
        self._cluster = wire.servers.cluster
        ids = (b"1", b"22")
        if self._cluster and any(len({slot_of(p.key(id)) for p in parts}) > 1 for id in ids):
            raise Refused(
                f"{where}: the keys of one block lie in different slots of the cluster",
                hint="give them one hash tag: {{user:{id}}} and {{user:{id}}}:sessions",
            )

    # ------------------------------------------------------------ keys

    def key(self, id: Value) -> bytes:
        key = super().key(id)
        if self.suffix(key) is None:
            self._unfit(id, "", "its key would be taken for one of another part")
        if (
            self._cluster
            and b"}" in key[len(self._lead.before) :][: -len(self._lead.after) or None]
        ):
            self._unfit(id, "", "it would end the hash tag of its keys")
        return key

    def _key(self, id: bytes) -> bytes:
        return self._lead.key(id)

    def keys(self, key: bytes) -> list[bytes]:
        """The keys of all parts of the block that has this one."""
        id_ = self._lead.id(key) or b""
        return [part.key(id_) for part in self.parts]

    @property
    def prefixes(self) -> Sequence[bytes]:
        return [part.before for part in self.parts]

    def suffix(self, key: bytes) -> bytes | None:
        for part in self._narrower:
            if part.id(key) is not None:
                return None
        return self._lead.id(key)

    def touched(self, key: bytes) -> Iterator[tuple[bytes, bool]]:
        if self.suffix(key) is not None:
            yield key, True
        for part in self._others:
            if part.type.name != DEADLINES and (id_ := part.id(key)) is not None:
                lead = self._lead.key(id_)
                if self.suffix(lead) is not None:
                    yield lead, False

    # ------------------------------------------------------------ reading

    @property
    def with_deadlines(self) -> bool:
        """Whether the deadlines of single fields are a part."""
        return bool(self._deadlines)

    @property
    def ending(self) -> Ending:
        """The parts of deadlines, and the hashes that they are of."""
        return {part.field: of.field for part, of in self._deadlines}

    @property
    def with_all_deadlines(self) -> bool:
        """Whether no deadline of a field is left out."""
        hashes = sum(part.type.name in _HASHES for part in self.parts)
        return len(self._deadlines) == hashes

    def read(self, keys: Sequence[bytes], run: Run | None = None) -> list[Found]:
        found: dict[bytes, Found] = {}
        left = keys
        run = run or self._wire.run
        for _ in range(TRIES):
            asked = self._names(run, left)
            units = [Unit(key, self._reading(key, asked[key])) for key in left]
            for key, replies in zip(left, run(units), strict=True):
                told = self._with_names(asked[key], replies)
                if told is not None:
                    found[key] = self._gathered(key, told)
            left = [key for key in left if key not in found]
            if not left:
                return [found[key] for key in keys]
        raise Transient(
            f"{names.shown(left[0])} was changed by others all the time",
            where=self._wire.where,
            hint="it is tried again",
        )

    def _listing(self, key: bytes) -> list[Command]:
        """What asks for the fields whose deadlines are a part."""
        id_ = self._lead.id(key) or b""
        return [("HKEYS", of.key(id_)) for _, of in self._deadlines]

    def _names(self, run: Run, keys: Sequence[bytes]) -> dict[bytes, list[Sequence[bytes]]]:
        """For each block, the fields that its hashes with deadlines have."""
        if not self._deadlines:
            return {key: [] for key in keys}
        units = [Unit(key, self._listing(key)) for key in keys]
        return {
            # What is no hash is told where it is read.
            key: [() if isinstance(reply, Exception) else reply for reply in replies]
            for key, replies in zip(keys, run(units), strict=True)
        }

    def _reading(self, key: bytes, asked: Sequence[Sequence[bytes]]) -> list[Command]:
        id_ = self._lead.id(key) or b""
        fields = iter(asked)
        commands: list[Command] = []
        for part in self.parts:
            place = part.key(id_)
            get = part.type.get(place)
            if part.type.name == DEADLINES:
                some = next(fields)
                get = (*get, "FIELDS", len(some), *some) if some else ("HLEN", place)
            commands += [get, ("PEXPIRETIME", place)]
        return commands

    def _with_names(
        self, asked: Sequence[Sequence[bytes]], replies: Sequence[Reply]
    ) -> list[Reply] | None:
        """Answers with the deadlines by name; None where a hash has other fields by now."""
        told = list(replies)
        for fields, (part, of) in zip(asked, self._deadlines, strict=True):
            at = 2 * self.parts.index(part)
            held, moments = told[2 * self.parts.index(of)], told[at]
            if isinstance(held, Exception) or isinstance(moments, Exception):
                continue
            if {*held[::2]} != {*fields}:
                return None
            pairs = zip(fields, moments or (), strict=True)
            told[at] = [part for field, since in pairs if since >= 0 for part in (field, since)]
        return told

    def _gathered(self, key: bytes, replies: Sequence[Reply]) -> Found:
        fields: dict[bytes, Any] = {}
        deadlines = set()
        size = len(key)
        id_ = self._lead.id(key) or b""
        for part, held, expires in zip(self.parts, replies[::2], replies[1::2], strict=True):
            for reply in (held, expires):
                if isinstance(reply, Exception):
                    error = self._failed(part.key(id_), reply)
                    whole = part is self._lead
                    return (
                        error if whole else DamagedBlock(error.what, where=error.where, hint=MEND)
                    )
            if expires == -2:
                if part is self._lead:
                    return None
                held = None
            else:
                deadlines.add(expires)
                size += _size(held)
            fields[part.field.encode("utf-8", "surrogatepass")] = held
        if len(deadlines) > 1:
            return DamagedBlock(
                f"{names.shown(key)}: its keys have different deadlines, and a block has one",
                where=self._wire.where,
                hint="give all of its keys one deadline (PEXPIREAT), or none (PERSIST)",
            )
        expires = deadlines.pop()
        return Raw(key, fields, None, None if expires < 0 else expires, size)

    def block(self, id: Value, raw: Raw) -> Block:
        return Block(id, self.rules.partition(self.record(raw, "copy")), raw.expires)

    def record(self, raw: Raw, reader: str) -> Record:
        """The aggregate, its parts read by ``copy`` or ``observe``. Raises Damaged."""
        record: Record = {}
        for part, held in zip(self.parts, raw.fields.values(), strict=True):
            path = escape(part.field) if part.field else ""
            read = part.type.copy if reader == "copy" else part.type.observe
            try:
                value = read(held) if held is not None else part.type.empty()
            except (ValueError, RecursionError) as error:
                raise Damaged(path, f"no {part.type.name}: {error}") from None
            if not part.field:
                if type(value) is not dict:
                    raise Damaged(path, "it is no record")
                record |= value
            elif held is not None or value is not None:
                if part.field in record:
                    raise Damaged(path, "the record has a field of this name, too")
                record[part.field] = value
        return record

    # ------------------------------------------------------------ writing

    def encode(self, block: Block) -> Encoded:
        encoded = super().encode(block)
        sizes = (len(x) for x in encoded.fields)
        encoded.size += sum(sizes)
        return encoded

    def _check(self, patch: Any) -> None:
        """What fits is known only with the whole block."""

    def replacing(self, key: bytes, raw: Raw | None, block: Encoded | None) -> list[Command]:
        return [("UNLINK", *self.keys(key))] if block is None else self._whole(block)

    def _encoded(self, id: Value, entries: Any) -> tuple[dict[bytes, bytes], dict[str, Any]]:
        try:
            record = dict(assemble(entries))
        except (*UNFIT, CorruptBlock) as error:
            self._unfit(id, "", f"it can't be held: {error}")
        fields = [part.field for part in self._others]
        found: dict[str, Any] = {}
        for part in reversed(self.parts):
            if part.field == "":
                value: Value = record
            elif part.field in record:
                value = record.pop(part.field)
            elif part.type.empty() is None:
                continue
            else:
                self._unfit(
                    id, escape(part.field), f"{part.field} is absent, and would come back empty"
                )
            found[part.field] = self.putting(id, part, value)
        if self._lead.field and record:
            left = escape(next(iter(record)))
            self._unfit(id, left, f"{left} is no part of the layout ({', '.join(fields)} are)")
        if not found.get(self._lead.field):
            self._unfit(id, "", "nothing would lie under its first key")
        for part, of in self._deadlines:
            puts = found.pop(part.field)
            there = {name for put in found.get(of.field, ()) for name in put[1::2]}
            for name in (name for put in puts for name in put[4:] if name not in there):
                path = escape(part.field)
                self._unfit(id, path, f"{path} has a deadline of {names.shown(name)}, no field")
            found[part.field] = puts  # behind its hash
        data = {
            str(arg).encode() if not isinstance(arg, bytes) else arg: b""
            for commands in found.values()
            for command in commands
            for arg in command[1:]
        }
        return data, found

    def putting(self, id: Value, part: Part, value: Value) -> list[Command]:
        """The commands that put a part, their keys left out; none for an empty one."""
        path = escape(part.field) if part.field else ""
        try:
            commands, held = part.type.put(value)
            same = equal(part.type.copy(held) if commands else part.type.empty(), value)
        except UNFIT as error:
            self._unfit(id, path, f"{path or 'the record'} is no {part.type.name}: {error}")
        if not same:
            self._unfit(id, path, f"a {part.type.name} would give {path or 'it'} back otherwise")
        return commands

    def _whole(self, each: Encoded) -> list[Command]:
        id_ = self._lead.id(each.key) or b""
        places = {part.field: part.key(id_) for part in self.parts}
        commands: list[Command] = [("UNLINK", *places.values())]
        for field, puts in each.notes.items():
            place = places[field]
            commands += [(put[0], place, *put[1:]) for put in puts]
            if puts and each.block.expires is not None:
                commands.append(("PEXPIREAT", place, each.block.expires))
        return commands

    def delete(self, keys: Sequence[bytes]) -> None:
        self._send((key, [("UNLINK", *self.keys(key))]) for key in keys)


def _size(held: Reply) -> int:
    if isinstance(held, list):
        return sum(map(_size, held))
    return len(held) if isinstance(held, bytes) else 0
