"""One class at one location in Redis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice

from migrator.errors import MigratorError, Refused, Transient
from migrator.exchange import Change, is_still
from migrator.journal import Journal, Note
from migrator.model.block import Address, Block, Patch
from migrator.model.canonical import equal
from migrator.model.ending import Ending
from migrator.model.move import At
from migrator.model.rules import Entries
from migrator.model.value import Value
from migrator.ports import Held, Json, Observer, Page, Statistics
from migrator.stores.redis import facts, findings, listing, names
from migrator.stores.redis.amending import WatchingAmender, amender_of
from migrator.stores.redis.forms import (
    Encoded,
    Form,
    Found,
    HashForm,
    OneKey,
    OtherType,
    Raw,
    StringForm,
    unreadable,
)
from migrator.stores.redis.journal import RedisJournal
from migrator.stores.redis.keyed import KeysForm
from migrator.stores.redis.listing import Walker
from migrator.stores.redis.names import Damaged
from migrator.stores.redis.native import NativeForm, parts_of
from migrator.stores.redis.note import RedisNote
from migrator.stores.redis.tracking import TrackingJournal
from migrator.stores.redis.wire import Unit, Wire

REGISTRY = b"_migrator:collections"
_FORMS: dict[str, type[OneKey]] = {"hash": HashForm, "keys": KeysForm, "string": StringForm}
# A page ends early rather than hold more than this.
_PAGE_BYTES = 16_000_000
_CHUNK = 250
_LOOKED_AT = 10_000

IdOf = Callable[[bytes], Value]
Decode = Callable[[Value, Raw], Block]


def form_of(wire: Wire, cls: str, at: At) -> Form:
    """The form of a location. Raises Refused for a layout or option that Redis does not know."""
    name = at.layout.name if at.layout else facts.DEFAULT_LAYOUT
    if at.tables is not None or name not in facts.LAYOUTS:
        raise Refused(
            f"{at}: Redis has no layout {name!r}", hint=f"choose one of: {', '.join(facts.LAYOUTS)}"
        )
    options = dict(at.layout.options) if at.layout else {}
    rules = at.rules(cls)
    if name == "native":
        return NativeForm(wire, cls, str(at), rules, parts_of(str(at), options))
    if options:
        raise Refused(f"{at}: layout {name} has no option {', '.join(options)}")
    if not at.collection or at.collection.startswith("_migrator"):
        raise Refused(f"{at}: {at.collection!r} can't be the name of a collection in Redis")
    return _FORMS[name](wire, cls, at.collection, rules)


class Reader:
    """Pages and blocks of a location, by one decoder."""

    def __init__(self, wire: Wire, form: Form, id_of: IdOf, decode: Decode) -> None:
        self._wire = wire
        self._form = form
        self._id_of = id_of
        self._decode = decode
        self._walker = Walker(self.scan)

    def scan(self) -> Iterable[list[bytes]]:
        """The keys of all blocks, batch by batch; a key may come twice."""
        form = self._form
        for batch in self._wire.scan(form.pattern, form.type):
            yield [key for key in batch if form.suffix(key) is not None]

    def id(self, key: bytes) -> Value:
        return self._id_of(self._form.suffix(key) or b"")

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        listed, next_ = self._walker.page(range_, position, limit)
        page = Page([], next_)
        for start in range(0, len(listed), _CHUNK):
            chunk = listed[start : start + _CHUNK]
            self.add(page, chunk)
            if page.bytes > _PAGE_BYTES and chunk[-1] != listed[-1]:
                page.next = listing.position(chunk[-1])
                break
        return page

    def add(self, page: Page, keys: Sequence[bytes]) -> None:
        """Put the blocks of some keys on a page; what can't be read is told there."""
        for key, found in zip(keys, self._form.read(keys), strict=True):
            if found is None:
                continue  # deleted or expired since it was listed
            id_ = self.id(key)
            if isinstance(found, MigratorError):
                page.damaged.append((id_, found.what))
                continue
            page.bytes += found.size
            try:
                page.blocks.append(self._decode(id_, found))
            except Damaged as error:
                page.damaged.append((id_, str(error)))

    def keys(self, range_: Json, position: Json, limit: int) -> tuple[list[Value], Json]:
        listed, next_ = self._walker.page(range_, position, limit)
        return [self.id(key) for key in listed], next_

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        """As of a collection."""
        keys = [self._form.key(id) for id in ids]
        wanted = list(dict.fromkeys(keys))
        found: dict[bytes, Block | None] = {}
        for start in range(0, len(wanted), _CHUNK):
            chunk = wanted[start : start + _CHUNK]
            for key, raw in zip(chunk, self._form.read(chunk), strict=True):
                found[key] = self.block(key, raw, strict=False)
        blocks = []
        given: set[bytes] = set()
        for key in keys:
            block = found[key]
            if block is not None and key in given:
                block = Block(block.id, dict(block.entries), block.expires)
            given.add(key)
            blocks.append(block)
        return blocks

    def block(self, key: bytes, found: Found, *, strict: bool) -> Block | None:
        """The block of what was found. A key of another type holds none; ``strict`` raises."""
        if found is None or (isinstance(found, OtherType) and not strict):
            return None
        if isinstance(found, MigratorError):
            raise found
        try:
            return self._decode(self.id(key), found)
        except Damaged as error:
            raise unreadable(names.shown(key), error, self._wire.where) from None


class Matcher(Reader):
    """The verifier's reader, which also tells without decoding what lies there as expected."""

    def match(self, expected: Sequence[Block]) -> list[Block | None]:
        from migrator.stores.redis.matching import matcher

        matches = matcher(self._form)
        blocks: list[Block | None] = []
        for start in range(0, len(expected), _CHUNK):
            chunk = expected[start : start + _CHUNK]
            keys = [self._form.key(block.id) for block in chunk]
            for block, key, raw in zip(chunk, keys, self._form.read(keys), strict=True):
                if isinstance(raw, Raw) and self._is_at(key, block.id) and matches(block, raw):
                    blocks.append(block)
                else:
                    blocks.append(self.block(key, raw, strict=False))
        return blocks

    def _is_at(self, key: bytes, id: Value) -> bool:
        """Whether a key is read as that of this block."""
        found = self.id(key)
        return found == id if type(found) is type(id) is str else equal(found, id)


class RedisCollection:
    """The blocks of one class, each under the key ``collection:id``."""

    def __init__(self, wire: Wire, cls: str, at: At) -> None:
        self.at = at
        self.cls = cls
        self._wire = wire
        self._form = form_of(wire, cls, at)
        self._reader = Reader(wire, self._form, names.id_of, self._form.block)
        self._name = at.collection.encode()
        self._amender = amender_of(wire, self._form)
        self._watching = WatchingAmender(wire, self._form)

    def journal(self, name: str) -> Journal:
        """The feed that the store's options name; only its markers tell runs apart."""
        tracks = self._wire.servers.feed == "tracking"
        made = TrackingJournal if tracks else RedisJournal
        return made(self._wire, self._form, names.id_of, name)

    def note(self, name: str) -> Note:
        """The note of this name, in the same database."""
        return RedisNote(self._wire, name)

    # ------------------------------------------------------------ the collection itself

    def _registry(self, command: str) -> int:
        ((reply,),) = self._wire.run(
            [Unit(REGISTRY, [(command, REGISTRY, self._name)])], writing=command != "SISMEMBER"
        )
        if isinstance(reply, Exception):
            raise self._wire.refusal(reply)
        return int(reply)

    def exists(self) -> bool:
        return bool(self._registry("SISMEMBER")) or any(self._reader.scan())

    def create(self) -> None:
        self._registry("SADD")

    def drop(self) -> None:
        for batch in self._reader.scan():
            if batch:
                self._form.delete(list(dict.fromkeys(batch)))
        self._registry("SREM")

    def schema(self) -> Json:
        return None

    def findings(self) -> Iterable[tuple[str, str, str]]:
        wire, infos = self._wire, self._infos()
        yield from findings.of_both_sides(infos)
        if not (isinstance(self._form, NativeForm) and self._form.with_all_deadlines):
            yield from findings.field_deadlines(infos, int(wire.servers.options["db"]))
        if isinstance(self._form, NativeForm) and self._form.with_deadlines:
            yield from findings.without_field_deadlines(infos)
        yield from findings.moving_slots(wire)
        if isinstance(self._form, NativeForm):
            return
        yield from findings.nested(self.at.collection, self._registered())
        some: list[bytes] = []
        for batch in islice(wire.scan(self._form.pattern, ""), _LOOKED_AT // 1000):
            some += [key for key in batch if self._form.suffix(key) is not None]
        yield from findings.other_types(wire, some, self._form.type)

    @property
    def ending(self) -> Ending:
        """The fields that hold deadlines of others: parts of layout ``native``."""
        return self._form.ending if isinstance(self._form, NativeForm) else {}

    def target_findings(self, blocks: int, size: int) -> Iterable[tuple[str, str, str]]:
        """As ``findings``, for a plan that writes so many blocks and bytes here."""
        return findings.of_target(self._infos(), self._wire.servers.replicas, blocks, size)

    def _infos(self) -> list[dict[str, str]]:
        return [findings.info(self._wire, master) for master in self._wire.masters()]

    def _registered(self) -> list[str]:
        ((reply,),) = self._wire.run([Unit(REGISTRY, [("SMEMBERS", REGISTRY)])])
        if isinstance(reply, Exception):
            raise self._wire.refusal(reply)
        return [name.decode("utf-8", "surrogateescape") for name in reply]

    def count(self) -> int:
        return listing.Listing(self._reader.scan()).count()

    def statistics(self) -> Statistics:
        looked = 0
        found: list[bytes] = []
        whole = True
        for batch in self._reader.scan():
            found += batch
            looked += 1000
            if looked >= _LOOKED_AT and found:
                whole = False
                break
        found = list(dict.fromkeys(found))
        some = [raw.size for raw in self._form.read(found[:100]) if isinstance(raw, Raw)]
        each = sum(some) / len(some) if some else 0
        blocks = len(found) if whole else round(len(found) / looked * self._all_keys())
        return Statistics(blocks, round(blocks * each), exact=False)

    def _all_keys(self) -> int:
        return sum(self._wire.ask(master, ("DBSIZE",)) for master in self._wire.masters())

    def settle(self) -> None:
        """Redis has neither sequences nor statistics of its own to mend."""

    # ------------------------------------------------------------ reading

    def split(self, parts: int) -> list[Json]:
        return listing.split(parts)

    def page(self, range_: Json, position: Json, limit: int) -> Page:
        return self._reader.page(range_, position, limit)

    def keys(self, range_: Json, position: Json, limit: int) -> tuple[list[Value], Json]:
        return self._reader.keys(range_, position, limit)

    def read(self, ids: Sequence[Value]) -> list[Block | None]:
        return self._reader.read(ids)

    def read_entries(self, id: Value, paths: Sequence[str]) -> Entries | None:
        return self._form.read_entries(id, paths)

    def sample(self, size: int) -> Page:
        # The tables of Redis have no order: the first keys of a scan are as good as any others.
        every = (key for batch in self._reader.scan() for key in batch)
        keys = list(dict.fromkeys(islice(every, size)))
        page = Page([], None)
        for start in range(0, len(keys), _CHUNK):
            self._reader.add(page, keys[start : start + _CHUNK])
        return page

    def observer(self) -> Observer:
        from migrator.stores.redis.observer import observed

        decode = observed(self._form, self.at.rules(self.cls))
        return Matcher(self._wire, self._form, names.observed_id, decode)

    # ------------------------------------------------------------ writing

    def write(self, blocks: Sequence[Block]) -> int:
        encoded: dict[bytes, Encoded] = {}
        for block in blocks:
            each = self._form.encode(block)
            encoded[each.key] = each
        if not encoded:
            return 0
        self._form.write(list(encoded.values()))
        return sum(each.size for each in encoded.values())

    def patch(self, patches: Sequence[Patch]) -> None:
        for patch in patches:
            self._form.patch(patch)

    def amend(
        self, id: Value, set: Mapping[str, Value], append: Mapping[str, Value]
    ) -> Block | None:
        after = None if self._amender is None else self._amender.amend(id, set, append)
        if after is not None:
            return after
        with self._once_where_replicas_count():
            return self._watching.amend(id, set, append)

    def exchange(self, id: Value, held: Block | None, change: Change) -> bool:
        with self._once_where_replicas_count():
            return self._exchanged(id, held, change)

    @contextmanager
    def _once_where_replicas_count(self) -> Iterator[None]:
        try:
            yield
        except Transient as error:
            # Read again it would be taken for done, though perhaps no replica has it.
            error.given_up = error.given_up or (error.unknown and bool(self._wire.servers.replicas))
            raise

    def _exchanged(self, id: Value, held: Block | None, change: Change) -> bool:
        key = self._form.key(id)
        encoded = self._form.encode(change) if isinstance(change, Block) else None
        with self._wire.watching(*self._form.keys(key)) as session:
            (found,) = self._form.read([key], session.run)
            if not is_still(self._reader.block(key, found, strict=True), held):
                return False
            raw = found if isinstance(found, Raw) else None
            if isinstance(change, Patch):
                commands = self._form.patching(key, change, raw)
            elif change is None and raw is None:
                return True
            else:
                commands = self._form.replacing(key, raw, encoded)
            return not commands or session.commit(commands) is not None

    def delete(self, addresses: Sequence[Address]) -> None:
        self._form.delete(list({self._form.key(address.id): None for address in addresses}))

    # ------------------------------------------------------------ what fits

    def size(self, block: Block) -> int:
        return self._form.encode(block).size

    def needs_tag(self, value: Value) -> Held | None:
        if isinstance(self._form, NativeForm):
            return facts.native_needs_tag(value, self._form.with_deadlines)
        return facts.needs_tag(value)

    def same_key(self, id: Value) -> Value:
        return id
