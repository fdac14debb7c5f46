"""How a block lies in Redis: the forms ``hash`` and ``string``, one key for a block.

A form reads what lies there (``Raw``), which the copier and the observer decode each in their
own way; and it makes of a block the unit that writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn, Protocol

from migrator.errors import DamagedBlock, DoesNotFit, MigratorError, Terminal, Transient
from migrator.model.block import Block, Patch, check_deadline
from migrator.model.block import name as block_name
from migrator.model.json_text import UNFIT, dump_bytes
from migrator.model.rules import CorruptBlock, Entries, Representation, assemble
from migrator.model.value import Record, Value
from migrator.stores.redis import codec, document, names
from migrator.stores.redis.names import SIDE, Damaged
from migrator.stores.redis.wire import Command, Reply, Session, Unit, Wire

MAX_BYTES = 512 * 1024 * 1024
TRIES = 20


@dataclass(slots=True)
class Raw:
    """What lies in the keys of one block: names and values of its entries as bytes.

    ``notes`` are the reserved field of a hash, or the directory; None where Migrator has not
    written this block. ``expires`` as in a block.
    """

    key: bytes
    fields: dict[bytes, Any]
    notes: bytes | dict[bytes, bytes] | None
    expires: int | None
    size: int


@dataclass(slots=True)
class Encoded:
    """A block ready to be sent: name to bytes, notes by access path, and its size."""

    block: Block
    key: bytes
    fields: dict[bytes, bytes]
    notes: dict[str, Any]
    size: int


MEND = "mend or remove the key with the application that wrote it"


class OtherType(Terminal):
    """What lies under a block's key is of another type, and so no block of the layout."""


Found = Raw | MigratorError | None
Decode = Callable[[Value, Raw], Block]
Run = Callable[[Sequence[Unit]], list[list[Reply]]]
"""``Wire.run``, or that of a ``Session``."""


class Form(Protocol):
    """One layout at one location."""

    type: str
    pattern: bytes
    rules: Representation

    def key(self, id: Value) -> bytes:
        """The key of a block. Raises DoesNotFit for an identifier that can be none."""

    @property
    def prefixes(self) -> Sequence[bytes]:
        """What all keys of blocks begin with: one of these."""

    def suffix(self, key: bytes) -> bytes | None:
        """The identifier's bytes in a key; None where the key is no block's."""

    def touched(self, key: bytes) -> Iterable[tuple[bytes, bool]]:
        """The keys of the blocks that a key is part of, and whether it is that of one itself."""

    def keys(self, key: bytes) -> Sequence[bytes]:
        """All keys that tell whether a block has changed, its own first."""

    def read(self, keys: Sequence[bytes], run: Run | None = None) -> list[Found]:
        """What lies in some keys; an error where one holds something else. ``run`` is by what it
        asks, by default the wire."""

    def block(self, id: Value, raw: Raw) -> Block:
        """The block, decoded by the copier. Raises Damaged."""

    def encode(self, block: Block) -> Encoded:
        """Raises DoesNotFit where Redis could not hold it."""

    def write(self, blocks: Sequence[Encoded]) -> None:
        """Put whole blocks."""

    def patch(self, patch: Patch) -> None:
        """Change entries of one block. Raises Terminal where there is none."""

    def patching(self, key: bytes, patch: Patch, raw: Raw | None) -> list[Command]:
        """The commands that patch what was read. Raises Terminal where there is no block."""

    def replacing(self, key: bytes, raw: Raw | None, block: Encoded | None) -> list[Command]:
        """The commands that put a whole block, or none, in the place of what was read there."""

    def read_entries(self, id: Value, paths: Sequence[str]) -> Entries | None:
        """Some entries."""

    def delete(self, keys: Sequence[bytes]) -> None:
        """Remove blocks."""


class OneKey:
    """What the forms of one key for a block share."""

    type = ""

    def __init__(self, wire: Wire, cls: str, prefix: str, rules: Representation) -> None:
        self._wire = wire
        self._cls = cls
        self.rules = rules
        self._prefix = prefix.encode() + b":"
        self.pattern = glob(self._prefix) + b"*"

    # ------------------------------------------------------------ keys

    def key(self, id: Value) -> bytes:
        try:
            data = names.id_bytes(id)
        except UNFIT as error:
            self._unfit(id, "", f"it can't be a key: {error}")
        if len(data) > MAX_BYTES:
            self._unfit(id, "", "the key is over 512 MB")
        return self._key(data)

    def _key(self, id: bytes) -> bytes:
        return self._prefix + id

    @property
    def prefixes(self) -> Sequence[bytes]:
        return (self._prefix,)

    def suffix(self, key: bytes) -> bytes | None:
        return key[len(self._prefix) :] if key.startswith(self._prefix) else None

    def touched(self, key: bytes) -> Iterable[tuple[bytes, bool]]:
        return [] if self.suffix(key) is None else [(key, True)]

    def _name(self, key: bytes) -> str:
        return names.shown(key)

    def _unfit(self, id: Value, path: str, why: str) -> NoReturn:
        raise DoesNotFit(
            f"{block_name(self._cls, id)}: {why}",
            key=id,
            path=path,
            where=self._wire.where,
            hint="change it, or set oversize='quarantine' on the move",
        )

    # ------------------------------------------------------------ reading

    _get: Command = ()

    def keys(self, key: bytes) -> Sequence[bytes]:
        return (key,)

    def read(self, keys: Sequence[bytes], run: Run | None = None) -> list[Found]:
        units = [Unit(key, [(*self._get, key), ("PEXPIRETIME", key)]) for key in keys]
        answers = (run or self._wire.run)(units)
        return [self._found(key, *replies) for key, replies in zip(keys, answers, strict=True)]

    def _found(self, key: bytes, held: Reply, expires: Reply) -> Found:
        for reply in (held, expires):
            if isinstance(reply, Exception):
                return self._failed(key, reply)
        if not held and expires == -2:
            return None
        return self._raw(key, held, None if expires < 0 else expires)

    def _failed(self, key: bytes, reply: Exception) -> MigratorError:
        """The error of one key; raises it where it is not that key's alone."""
        error = self._wire.refusal(reply, name=self._name(key))
        if isinstance(error, Transient) or "another type" not in error.what:
            raise error
        return OtherType(error.what, where=error.where, hint=error.hint)

    def _raw(self, key: bytes, held: Reply, expires: int | None) -> Raw:
        raise NotImplementedError

    def block(self, id: Value, raw: Raw) -> Block:
        raise NotImplementedError

    # ------------------------------------------------------------ writing

    def encode(self, block: Block) -> Encoded:
        key = self.key(block.id)
        if not block.entries:
            self._unfit(block.id, "", "a block has no entry")
        check_deadline(block.id, block.expires, self._wire.where)
        fields, notes = self._encoded(block.id, block.entries)
        size = len(key) + sum(map(len, fields)) + sum(map(len, fields.values()))
        return Encoded(block, key, fields, notes, size)

    def _encoded(self, id: Value, entries: Entries) -> tuple[dict[bytes, bytes], dict[str, Any]]:
        """Entries as names and bytes, and their notes. Raises DoesNotFit."""
        fields: dict[bytes, bytes] = {}
        notes: dict[str, codec.Note] = {}
        for path, value in entries.items():
            try:
                data, note = codec.encode(value)
            except UNFIT as error:
                self._unfit(id, path, f"{path or 'it'} can't be held: {error}")
            if len(data) > MAX_BYTES:
                self._unfit(id, path, f"{path or 'it'} has {len(data):,} bytes; 512 MB fit")
            fields[names.field_of(path)] = data
            if note is not None:
                notes[path] = note
        return fields, notes

    def write(self, blocks: Sequence[Encoded]) -> None:
        self._send([(each.key, self._whole(each)) for each in blocks])

    def _whole(self, each: Encoded) -> list[Command]:
        """The commands that put a whole block. A deadline that has passed makes it a deletion."""
        raise NotImplementedError

    def delete(self, keys: Sequence[bytes]) -> None:
        self._send([(key, [("UNLINK", key)]) for key in keys])

    def _send(self, changes: Iterable[tuple[bytes, list[Command]]]) -> None:
        self._wire.obeyed([Unit(key, commands) for key, commands in changes])

    def patch(self, patch: Patch) -> None:
        key = self.key(patch.id)
        self._check(patch)
        self._commit(key, lambda session: self._patched(patch, self._look(session, key)))

    def _commit(self, key: bytes, changes: Callable[[Session], list[Command]]) -> None:
        """Carry out what follows from what is there, unless that changed meanwhile: then again."""
        for _ in range(TRIES):
            with self._wire.watching(*self.keys(key)) as session:
                commands = changes(session)
                if not commands or session.commit(commands) is not None:
                    return
        raise Transient(
            f"{self._name(key)} was changed by others all the time",
            where=self._wire.where,
            hint="it is tried again",
        )

    def patching(self, key: bytes, patch: Patch, raw: Raw | None) -> list[Command]:
        self._check(patch)
        if raw is None:
            raise self._absent(key)
        return self._patched(patch, raw)

    def replacing(self, key: bytes, raw: Raw | None, block: Encoded | None) -> list[Command]:
        return [("UNLINK", key)] if block is None else self._whole(block)

    def _check(self, patch: Patch) -> None:
        """Raises DoesNotFit before anything is asked."""
        self._encoded(patch.id, patch.set)

    def _look(self, session: Session, key: bytes) -> Raw:
        """As much of a block as a patch has to know. Raises Terminal where there is none."""
        (found,) = self.read([key], session.run)
        if not isinstance(found, Raw):
            raise self._absent(key) if found is None else found
        return found

    def _patched(self, patch: Patch, raw: Raw) -> list[Command]:
        """As ``patching``, of a patch that was checked: what puts the whole block with it."""
        block = self.readable(patch.id, raw)
        block.entries.update(patch.set)
        for path in patch.unset:
            block.entries.pop(path, None)
        return self._whole(self.encode(block))

    def readable(self, id: Value, raw: Raw) -> Block:
        try:
            return self.block(id, raw)
        except Damaged as error:
            raise unreadable(self._name(raw.key), error, self._wire.where) from None

    def _absent(self, key: bytes) -> Terminal:
        return Terminal(
            f"there is no block {self._name(key)}",
            where=self._wire.where,
            hint="it was deleted meanwhile; write it whole",
        )

    def read_entries(self, id: Value, paths: Sequence[str]) -> Entries | None:
        (raw,) = self.read([self.key(id)])
        if isinstance(raw, MigratorError):
            raise raw
        if raw is None:
            return None
        entries = self.readable(id, raw).entries
        return {path: entries[path] for path in paths if path in entries}


class HashForm(OneKey):
    """A hash for a block, a field for an entry, and the reserved field with the notes."""

    type = "hash"
    _get = ("HGETALL",)

    def _raw(self, key: bytes, held: Reply, expires: int | None) -> Raw:
        size = len(key) + sum(map(len, held))
        fields = dict(zip(held[::2], held[1::2], strict=True))
        return Raw(key, fields, fields.pop(SIDE, None), expires, size)

    def block(self, id: Value, raw: Raw) -> Block:
        if raw.notes is None:
            record: Record = {
                names.foreign_name(field): codec.plain(data or b"")
                for field, data in raw.fields.items()
            }
            return Block(id, self.rules.partition(record), raw.expires)
        assert isinstance(raw.notes, bytes)
        notes = codec.read_side(raw.notes)
        entries = {}
        for field, data in raw.fields.items():
            path = names.path_of(field)
            entries[path] = codec.decode(data or b"", notes.get(path))
        if not entries:
            raise Damaged("", "a block has no entry")
        return Block(id, entries, raw.expires)

    def _whole(self, each: Encoded) -> list[Command]:
        pairs = chain.from_iterable(each.fields.items())
        commands: list[Command] = [
            ("UNLINK", each.key),
            ("HSET", each.key, *pairs, SIDE, codec.write_side(each.notes)),
        ]
        if each.block.expires is not None:
            commands.append(("PEXPIREAT", each.key, each.block.expires))
        return commands

    def _look(self, session: Session, key: bytes) -> Raw:
        there, side = session.ask(("EXISTS", key), ("HGET", key, SIDE))
        if not there:
            raise self._absent(key)
        return super()._look(session, key) if side is None else Raw(key, {}, side, None, 0)

    def _patched(self, patch: Patch, raw: Raw) -> list[Command]:
        if not isinstance(raw.notes, bytes):
            return super()._patched(patch, raw)
        key = raw.key
        fields, new = self._encoded(patch.id, patch.set)
        before = codec.read_side(raw.notes)
        gone = {*patch.set, *patch.unset}
        notes = {path: note for path, note in before.items() if path not in gone} | new
        commands: list[Command] = []
        if fields:
            commands.append(("HSET", key, *(part for pair in fields.items() for part in pair)))
        if notes != before:
            commands.append(("HSET", key, SIDE, codec.write_side(notes)))
        if patch.unset:
            commands.append(("HDEL", key, *map(names.field_of, patch.unset)))
        return commands

    def read_entries(self, id: Value, paths: Sequence[str]) -> Entries | None:
        key = self.key(id)
        fields = [names.field_of(path) for path in paths]
        unit = Unit(key, [("EXISTS", key), ("HMGET", key, SIDE, *fields)])
        ((there, held),) = self._wire.run([unit])
        for reply in (there, held):
            if isinstance(reply, Exception):
                raise self._wire.refusal(reply, name=self._name(key))
        if not there:
            return None
        side, *found = held
        if side is None:
            return super().read_entries(id, paths)
        notes = codec.read_side(side)
        pairs = zip(paths, found, strict=True)
        return {p: codec.decode(data, notes.get(p)) for p, data in pairs if data is not None}


class StringForm(OneKey):
    """The whole aggregate as one JSON text."""

    type = "string"
    _get = ("GET",)

    def _raw(self, key: bytes, held: Reply, expires: int | None) -> Raw:
        return Raw(key, {b"": held}, None, expires, len(key) + len(held))

    def block(self, id: Value, raw: Raw) -> Block:
        record = document.read(raw.fields[b""] or b"")
        return Block(id, self.rules.partition(record), raw.expires)

    def _encoded(self, id: Value, entries: Entries) -> tuple[dict[bytes, bytes], dict[str, Any]]:
        try:
            data = document.write(assemble(entries))
        except (*UNFIT, CorruptBlock) as error:
            self._unfit(id, "", f"it can't be held: {error}")
        if len(data) > MAX_BYTES:
            self._unfit(id, "", f"it has {len(data):,} bytes; 512 MB fit in one value")
        return {b"": data}, {}

    def _whole(self, each: Encoded) -> list[Command]:
        commands: list[Command] = [("SET", each.key, each.fields[b""])]
        if each.block.expires is not None:
            commands.append(("PEXPIREAT", each.key, each.block.expires))
        return commands

    def _check(self, patch: Patch) -> None:
        for path, value in patch.set.items():
            try:
                dump_bytes(value)
            except UNFIT as error:
                self._unfit(patch.id, path, f"{path or 'it'} can't be held: {error}")


def glob(literal: bytes) -> bytes:
    """A pattern that matches these bytes alone."""
    return b"".join(b"\\" + bytes([c]) if c in b"*?[]^\\" else bytes([c]) for c in literal)


def unreadable(name: str, error: Exception, where: str) -> DamagedBlock:
    """The error for a single block that was asked for and can't be read."""
    return DamagedBlock(
        f"{name} can't be read: {error}",
        where=where,
        hint=MEND,
    )
