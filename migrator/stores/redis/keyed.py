"""The form ``keys``: a string for an entry, all under one hash tag, and a directory of them.

    {Player:mary}             the directory: a hash, name of the entry to its note
    {Player:mary}:firstName   an entry
    {Player:mary}:games[0]    another

What the directory does not name is no part of the block. Entries and directory change in one
MULTI, and are read in one: which entries to ask for is known from a look at the directory just
before, so a block that changed in between is asked for again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from migrator.errors import Transient
from migrator.model.block import Block, Patch
from migrator.model.json_text import compact
from migrator.model.rules import Entries, Representation
from migrator.model.value import Value
from migrator.stores.redis import codec, names
from migrator.stores.redis.forms import TRIES, Encoded, Found, OneKey, Raw, Run, glob
from migrator.stores.redis.names import SIDE, Damaged, braced, unbraced
from migrator.stores.redis.wire import Command, Reply, Session, Unit, Wire


class KeysForm(OneKey):
    """Several keys for a block, known by their directory."""

    type = "hash"

    def __init__(self, wire: Wire, cls: str, prefix: str, rules: Representation) -> None:
        super().__init__(wire, cls, prefix, rules)
        self._prefix = b"{" + braced(prefix.encode()) + b":"
        self.pattern = glob(self._prefix) + b"*}"

    # ------------------------------------------------------------ keys

    def _key(self, id: bytes) -> bytes:
        return self._prefix + braced(id) + b"}"

    def suffix(self, key: bytes) -> bytes | None:
        if not key.startswith(self._prefix) or key.find(b"}") != len(key) - 1:
            return None
        return unbraced(key[len(self._prefix) : -1])

    def touched(self, key: bytes) -> Iterable[tuple[bytes, bool]]:
        head, brace, rest = key.partition(b"}")
        directory = head + brace
        if not brace or rest[:1] not in (b"", b":") or self.suffix(directory) is None:
            return []
        return [(directory, not rest)]

    # ------------------------------------------------------------ reading

    def read(self, keys: Sequence[bytes], run: Run | None = None) -> list[Found]:
        found: dict[bytes, Found] = {}
        run = run or self._wire.run
        left = self._directories(run, keys, found)
        for _ in range(TRIES):
            left = self._entries(run, left, found)
            if not left:
                return [found[key] for key in keys]
        raise Transient(
            f"{names.shown(next(iter(left)))} was changed by others all the time",
            where=self._wire.where,
            hint="it is tried again",
        )

    def _directories(
        self, run: Run, keys: Sequence[bytes], found: dict[bytes, Found]
    ) -> dict[bytes, list[bytes]]:
        """The names of the entries of each block; those that are none go into ``found``."""
        known: dict[bytes, list[bytes]] = {}
        units = [Unit(key, [("HKEYS", key)]) for key in keys]
        for key, (held,) in zip(keys, run(units), strict=True):
            if isinstance(held, Exception):
                found[key] = self._failed(key, held)
            elif not held:
                found[key] = None
            else:
                known[key] = [name for name in held if name != SIDE]
        return known

    def _entries(
        self, run: Run, known: dict[bytes, list[bytes]], found: dict[bytes, Found]
    ) -> dict[bytes, list[bytes]]:
        """Read blocks with these entries into ``found``; the names of those that have others."""
        changed = {}
        units = []
        for key, fields in known.items():
            commands: list[Command] = [("HGETALL", key), ("PEXPIRETIME", key)]
            if fields:
                commands.append(("MGET", *_places(key, fields)))
            units.append(Unit(key, commands))
        for (key, fields), replies in zip(known.items(), run(units), strict=True):
            held, expires, *rest = replies
            failed = next((r for r in replies if isinstance(r, Exception)), None)
            if failed is not None:
                found[key] = self._failed(key, failed)
                continue
            notes = dict(zip(held[::2], held[1::2], strict=True))
            notes.pop(SIDE, None)
            if expires == -2:
                found[key] = None
            elif notes.keys() == set(fields):
                values: list[bytes | None] = rest[0] if rest else []
                entries = dict(zip(fields, values, strict=True))
                size = len(key) + sum(len(f) + len(x or b"") for f, x in entries.items())
                found[key] = Raw(key, entries, notes, None if expires < 0 else expires, size)
            else:
                changed[key] = list(notes)
        return changed

    def block(self, id: Value, raw: Raw) -> Block:
        assert isinstance(raw.notes, dict)
        entries: Entries = {}
        for field, data in raw.fields.items():
            path = names.path_of(field)
            if data is None:
                raise Damaged(path, "its key is gone")
            entries[path] = codec.decode(data, codec.read_note(raw.notes[field]))
        if not entries:
            raise Damaged("", "a block has no entry")
        return Block(id, entries, raw.expires)

    def read_entries(self, id: Value, paths: Sequence[str]) -> Entries | None:
        key = self.key(id)
        fields = [names.field_of(path) for path in paths]
        unit = Unit(key, [("EXISTS", key), ("HMGET", key, SIDE, *fields)])
        unit.commands = (
            [*unit.commands, ("MGET", *_places(key, fields))] if fields else unit.commands
        )
        (replies,) = self._wire.run([unit])
        self._raise(key, replies)
        there, (_, *notes), *rest = replies
        if not there:
            return None
        values = rest[0] if rest else []
        return {
            path: codec.decode(data, codec.read_note(note))
            for path, data, note in zip(paths, values, notes, strict=True)
            if data is not None and note is not None
        }

    # ------------------------------------------------------------ writing

    def write(self, blocks: Sequence[Encoded]) -> None:
        self._replace({each.key: each for each in blocks})

    def delete(self, keys: Sequence[bytes]) -> None:
        self._replace(dict.fromkeys(keys))

    def _replace(self, blocks: dict[bytes, Encoded | None]) -> None:
        """Put blocks in the place of what is there, or nothing.

        Entries that a block no longer has go in the same MULTI. Should somebody else have
        added some just before, the directory of that moment shows them, and they go as well.
        """
        before = self._names_of(blocks)
        units = [
            Unit(key, [("HKEYS", key), *self._replacing(key, before[key], block)])
            for key, block in blocks.items()
        ]
        for unit, replies in zip(units, self._wire.run(units, writing=True), strict=True):
            self._raise(unit.key, replies)
            block = blocks[unit.key]
            left = {*replies[0]} - {*before[unit.key]} - {SIDE}
            if block is not None:
                left -= block.fields.keys()
            if left:
                self._sweep(unit.key, left)

    def _names_of(self, keys: Iterable[bytes]) -> dict[bytes, list[bytes]]:
        units = [Unit(key, [("HKEYS", key)]) for key in keys]
        found = {}
        for unit, replies in zip(units, self._wire.run(units), strict=True):
            self._raise(unit.key, replies)
            found[unit.key] = replies[0]
        return found

    def replacing(self, key: bytes, raw: Raw | None, block: Encoded | None) -> list[Command]:
        return self._replacing(key, [] if raw is None else list(raw.fields), block)

    def _replacing(
        self, key: bytes, before: Sequence[bytes], block: Encoded | None
    ) -> list[Command]:
        new = {} if block is None else block.fields
        gone = [name for name in before if name not in new and name != SIDE]
        commands: list[Command] = [("UNLINK", key, *_places(key, gone))]
        if block is not None:
            commands += self._setting(key, block.fields, block.notes, block.block.expires)
            if block.block.expires is not None:
                commands.append(("PEXPIREAT", key, block.block.expires))
        return commands

    def _setting(
        self,
        key: bytes,
        fields: dict[bytes, bytes],
        notes: dict[str, codec.Note],
        expires: int | None,
    ) -> list[Command]:
        """Set entries with their notes; each lives as long as the block."""
        pairs = [part for f, data in fields.items() for part in (_place(key, f), data)]
        held = dict.fromkeys(fields, b"") | {
            names.field_of(path): compact(note).encode() for path, note in notes.items()
        }
        commands: list[Command] = [
            ("MSET", *pairs),
            ("HSET", key, *(part for pair in held.items() for part in pair)),
        ]
        if expires is not None:
            commands += [("PEXPIREAT", place, expires) for place in _places(key, fields)]
        return commands

    def _sweep(self, key: bytes, fields: set[bytes]) -> None:
        """Remove entries that no directory names any more."""

        def commands(session: Session) -> list[Command]:
            (now,) = session.ask(("HKEYS", key))
            gone = fields - {*now}
            return [("UNLINK", *_places(key, gone))] if gone else []

        self._commit(key, commands)

    def _look(self, session: Session, key: bytes) -> Raw:
        there, expires = session.ask(("EXISTS", key), ("PEXPIRETIME", key))
        if not there:
            raise self._absent(key)
        return Raw(key, {}, None, None if expires < 0 else expires, 0)

    def _patched(self, patch: Patch, raw: Raw) -> list[Command]:
        key = raw.key
        fields, notes = self._encoded(patch.id, patch.set)
        commands: list[Command] = []
        if fields:
            commands += self._setting(key, fields, notes, raw.expires)
        gone = [names.field_of(path) for path in patch.unset]
        if gone:
            commands += [("UNLINK", *_places(key, gone)), ("HDEL", key, *gone)]
        return commands

    def _raise(self, key: bytes, replies: Iterable[Reply]) -> None:
        for reply in replies:
            if isinstance(reply, Exception):
                raise self._wire.refusal(reply, name=names.shown(key))


def _place(key: bytes, field: bytes) -> bytes:
    """The key of an entry."""
    return key + b":" + field


def _places(key: bytes, fields: Iterable[bytes]) -> list[bytes]:
    return [_place(key, field) for field in fields]
