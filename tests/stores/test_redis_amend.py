"""Fields of a block of Redis that are changed where they lie: one request, or nothing is done."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrator.errors import DamagedBlock, Refused, Transient
from migrator.model.block import Address, Aggregate, Block, cut
from migrator.model.canonical import equal
from migrator.model.layouts import redis_native
from migrator.model.move import At, Layout
from migrator.model.rules import assemble
from migrator.model.value import ObjectId, Record
from migrator.ports import StoreSettings
from migrator.retry import Retry
from migrator.stores.redis import open_store
from migrator.stores.redis import wire as wires
from migrator.stores.redis.collection import RedisCollection
from migrator.stores.redis.wire import Session, Wire
from tests.contract import own_redis, servers
from tests.contract.own_redis import Own
from tests.stores.test_redis_feed import drained

KEY = "k"
START: Record = {"id": KEY, "n": 1, "first": "ann", "rounds": [{"n": 0}], "odd": [1.5]}
SHAPES = ("native", "fields", "rounds")
WHOLE = ("whole", "keys", "string")
"""Of which no script takes anything: what is set lies in one entry with all else."""
_DATABASE = 6


class Place:
    """A collection in one of the shapes, on a database of its own, and the plain driver."""

    def __init__(self, shape: str, url: str = "", *, clear: bool = True, **options: object) -> None:
        self.shape = shape
        url = url or f"redis://127.0.0.1:{own_redis.shared().port}/{_DATABASE}"
        self.store = open_store(StoreSettings("cache", url, options))
        name = f"{servers.namespace()}amend"
        key = f"{{{{{name}:{{id}}}}}}"
        layout = Layout(shape if shape in ("keys", "string") else "hash")
        if shape == "native":
            layout = redis_native(key, "hash of json", rounds=(f"{key}:rounds", "list of json"))
        rules = ["/Game/*/rounds[*]"] * (shape == "rounds") + ["/Game/*/*"]
        rules = ["/Game/*/**"] if shape == "values" else rules
        at = At("cache", name, ["/Game/*"] if shape in WHOLE else rules, layout)
        collection = self.store.collection("Game", at)
        assert isinstance(collection, RedisCollection)
        self.collection = collection
        self.key = f"{{{name}:{KEY}}}" if shape == "native" else f"{name}:{KEY}"
        cluster = url.startswith("rediscluster")
        made: Any = redis.RedisCluster if cluster else redis.Redis
        self.plain: Any = made.from_url(url.replace("rediscluster", "redis").split(",")[0])
        if clear:
            self.clear()

    def clear(self) -> None:
        self.plain.delete(self.key, f"{self.key}:rounds")

    def put(self, value: Record = START, expires: int | None = None) -> None:
        rules = self.collection.at.rules("Game")
        self.collection.write([cut(Aggregate(KEY, value, expires), rules)])

    def held(self) -> Block | None:
        (block,) = self.collection.read([KEY])
        return block

    def raw(self) -> tuple[Any, ...]:
        below = [] if self.shape != "native" else self.plain.lrange(f"{self.key}:rounds", 0, -1)
        ends = self.plain.pexpiretime(self.key)
        return self.plain.hgetall(self.key), below, ends

    def amend(self, set: Record, append: Record | None = None) -> Block | None:
        return self.collection.amend(KEY, set, append or {})

    def refuses(self, set: Record, append: Record | None = None) -> None:
        """No script does it."""
        before = self.raw()
        assert self.collection._amender is not None
        assert self.collection._amender.amend(KEY, set, append or {}) is None
        assert self.raw() == before

    def close(self) -> None:
        self.clear()
        self.plain.close()
        self.store.close()


@pytest.fixture(params=SHAPES)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    made = Place(request.param)
    yield made
    made.close()


@pytest.fixture(params=SHAPES[1:])
def entries(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Of layout ``hash``."""
    made = Place(request.param)
    yield made
    made.close()


@pytest.fixture
def native() -> Iterator[Place]:
    made = Place("native")
    yield made
    made.close()


def assert_is(block: Block | None, value: Record, expires: int | None = None) -> None:
    assert block is not None
    assert equal(assemble(block.entries), value)
    assert block.expires == expires


# ---------------------------------------------------------------- what is done


def test_it_takes_one_request_and_tells_the_block(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = int(time.time() * 1000) + 60_000_000
    place.put(expires=ends)
    place.amend({"n": 2})  # the server has the script
    sent: list[object] = []
    lend = Wire._connection

    def counted(*args: Any, **more: Any) -> Any:
        sent.append(args)
        return lend(*args, **more)

    monkeypatch.setattr(Wire, "_connection", counted)
    changed = {**START, "n": 3, "first": "böb"}
    assert_is(place.amend({"n": 3, "first": "böb"}), changed, ends)
    longer = {**changed, "rounds": [{"n": 0}, {"n": 1, "é": [None]}]}
    assert_is(place.amend({}, {"rounds": {"n": 1, "é": [None]}}), longer, ends)
    assert len(sent) == 2
    monkeypatch.undo()
    assert_is(place.held(), longer, ends)
    assert {place.plain.pexpiretime(key) for key in place.plain.keys(f"{place.key}*")} == {ends}


def test_a_field_that_is_new_is_added(place: Place) -> None:
    place.put()
    assert_is(place.amend({"more": {"x": [1, {}]}}), {**START, "more": {"x": [1, {}]}})
    assert_is(place.held(), {**START, "more": {"x": [1, {}]}})


def test_no_list_or_no_block_is_left_to_an_exchange(place: Place) -> None:
    place.refuses({"n": 2})
    place.refuses({}, {"rounds": 1})
    place.put()
    for name in ("n", "absent", "first"):
        place.refuses({}, {name: 1})
    place.refuses({"n": 2}, {"rounds": 1})
    if place.shape == "native":  # another key holds it, and none a name that is no text
        place.refuses({"rounds": [1]})
        place.refuses({"\ud800": 1})
    else:  # entries are not called so
        for name in ("_migrator", "a.b", ""):
            place.refuses({name: 1})
    place.refuses({"n": 10**5000})
    place.refuses({"n": 2, "price": ObjectId(bytes(12))})
    place.refuses({}, {"rounds": ObjectId(bytes(12))})


def test_a_list_that_is_empty_and_one_with_a_deadline(native: Place) -> None:
    empty = {**START, "rounds": []}
    native.put(empty)
    assert_is(native.amend({}, {"rounds": 1}), {**START, "rounds": [1]})
    native.put(empty, int(time.time() * 1000) + 60_000_000)
    native.refuses({}, {"rounds": 1})  # its key would have none


def test_a_list_of_a_field_becomes_longer_as_text(place: Place) -> None:
    for value in ([], [1.5], ["]", "é"]):
        place.put({**START, "odd": value})
        if place.shape == "native":
            place.refuses({}, {"odd": {"x": 1}})
            continue
        assert_is(place.amend({}, {"odd": {"x": 1}}), {**START, "odd": [*value, {"x": 1}]})
        assert_is(place.held(), {**START, "odd": [*value, {"x": 1}]})


def test_a_block_of_nothing_but_a_list_becomes_longer(entries: Place) -> None:
    entries.put({"rounds": [0]})
    assert_is(entries.amend({}, {"rounds": 1}), {"rounds": [0, 1]})
    assert_is(entries.held(), {"rounds": [0, 1]})


def test_what_would_hold_up_the_server_is_left_to_an_exchange(place: Place) -> None:
    place.put({**START, "rounds": [0] * 301})
    if place.shape != "fields":  # there it is one text
        place.refuses({"n": 2})
        place.refuses({}, {"rounds": 1})
    place.put({**START, "rounds": ["x" * 33_000, *[0] * 298]})
    if place.shape != "rounds":  # there no element is looked at
        place.refuses({}, {"rounds": 1})
    place.put({**START, "rounds": ["x" * 32_000]})
    assert place.amend({}, {"rounds": 1}) is not None
    assert place.amend({"n": 2}) is not None


def test_no_entry_is_more_than_the_rules_take() -> None:
    for shape, start in (("values", {"id": KEY, "list": []}), ("rounds", {"id": KEY})):
        place = Place(shape)
        place.put({**start, "rounds": []})
        for change in (({"rounds": [1]}, None), ({}, {"rounds": 1})):
            place.refuses(*change)  # type: ignore[arg-type]
            after = place.amend(*change)  # type: ignore[arg-type]
            assert after is not None
            assert equal(after.entries, {**start, "rounds[0]": 1})
            place.put({**start, "rounds": []})
        place.close()


# ---------------------------------------------------------------- where no script is


@pytest.fixture(params=WHOLE)
def whole(request: pytest.FixtureRequest) -> Iterator[Place]:
    made = Place(request.param)
    yield made
    made.collection.delete([Address(KEY)])
    made.close()


def test_what_no_script_takes_is_looked_at_and_changed(
    whole: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = int(time.time() * 1000) + 60_000_000
    whole.put(expires=ends)
    sent: list[object] = []
    exchange = wires._exchange

    def counted(connection: Any, commands: Any) -> Any:
        sent.append(commands)
        return exchange(connection, commands)

    monkeypatch.setattr(wires, "_exchange", counted)
    changed = {**START, "n": ObjectId(bytes(12)), "more": "5"}
    assert_is(whole.amend({"n": ObjectId(bytes(12)), "more": "5"}), changed, ends)
    longer = {**changed, "rounds": [{"n": 0}, None]}
    assert_is(whole.amend({}, {"rounds": None}), longer, ends)
    assert len(sent) == 2 * (3 if whole.shape == "keys" else 2)
    monkeypatch.undo()
    assert_is(whole.held(), longer, ends)
    assert whole.amend({}, {"n": 1}) is None
    assert whole.amend({"n": 10**5000}) is None
    assert_is(whole.held(), longer, ends)


def test_whoever_is_faster_than_a_look_and_a_change_stays(
    whole: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole.put()
    run = Session.run

    def slow(self: Session, units: Any) -> Any:
        answers = run(self, units)
        whole.put({**START, "n": 9})
        return answers

    with monkeypatch.context() as patch:
        patch.setattr(Session, "run", slow)
        assert whole.amend({"n": 2}) is None
    assert_is(whole.held(), {**START, "n": 9})
    assert_is(whole.amend({"n": 2}), {**START, "n": 2})


def test_only_what_was_to_be_carried_out_leaves_a_doubt(
    whole: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole.put()
    held, exchange = whole.held(), wires._exchange
    for unknown in (False, True):

        def breaks(connection: Any, commands: Any, *, at_the_end: bool = unknown) -> Any:
            replies = exchange(connection, commands)
            if (("EXEC",) in commands) is at_the_end:
                raise redis.ConnectionError("gone")
            return replies

        with monkeypatch.context() as patch:
            patch.setattr(wires, "_exchange", breaks)
            with pytest.raises(Transient) as caught:
                whole.collection.exchange(KEY, held, None)
        assert caught.value.unknown is unknown
    assert whole.held() is None


# ---------------------------------------------------------------- what can't be read


def test_what_has_a_note_is_left_to_an_exchange(entries: Place) -> None:
    entries.put({**START, "n": ObjectId(bytes(12)), "first": "5", "odd": [ObjectId(bytes(12))]})
    for change in ({"n": 1}, {"first": "x"}, {"id": "5"}):
        entries.refuses(change)
    entries.refuses({}, {"odd": 1})
    assert entries.amend({"id": "x"}) is not None
    entries.plain.hdel(entries.key, "_migrator")
    entries.refuses({"id": "y"})


DAMAGED = (
    '{"n":', "01", "[1,]", "1e999", "-", ".5", "1.", "+1", "0x10", "nan", "-01",
    "inf", '"\\x"', b'"\xff"', b'"\xc3"', b'"\xed\xa0\x80"', "1,2", "", '"a', "[1", "{} {}", "nul",
)  # fmt: skip


@pytest.mark.parametrize("text", DAMAGED)
def test_a_part_that_is_no_json_is_noticed_before_the_write(native: Place, text: Any) -> None:
    for damage in ("field", "element"):
        native.put()
        if damage == "field":
            native.plain.hset(native.key, "bad", text)
        else:
            native.plain.rpush(f"{native.key}:rounds", text)
        with pytest.raises(DamagedBlock):
            native.held()
        native.refuses({"n": 2})
        native.refuses({}, {"rounds": 1})


def test_halves_make_no_whole(native: Place) -> None:
    native.put()
    native.plain.rpush(f"{native.key}:rounds", "[1", "2]", '3,"x",4')
    native.refuses({"n": 2})


def test_keys_that_make_no_block_are_noticed_before_the_write(native: Place) -> None:
    def with_a_list(client: redis.Redis) -> None:
        client.delete(native.key)
        client.rpush(native.key, 1)

    rounds = f"{native.key}:rounds"
    for act in (
        lambda client: client.hset(native.key, "rounds", "[]"),
        lambda client: client.expire(native.key, 1000),
        lambda client: client.expire(rounds, 1000),
        lambda client: (client.delete(rounds), client.set(rounds, "x")),
        lambda client: client.delete(native.key),
    ):
        native.clear()
        native.put()
        act(native.plain)  # type: ignore[no-untyped-call]
        for change in (({"n": 2}, None), ({}, {"rounds": 1})):
            before = {key: native.plain.dump(key) for key in (native.key, rounds)}
            assert native.amend(*change) is None  # type: ignore[arg-type]
            assert {key: native.plain.dump(key) for key in (native.key, rounds)} == before


def test_entries_that_make_no_block_are_noticed_before_the_write(entries: Place) -> None:
    for fields in (
        {"rounds[7]": "1"}, {"a..b": "1"}, {b"\xff": "1"}, {"x[0]": "1", "x": "2"}, {"": "no"},
        {"": "[]"}, {"": '{"n":1}'},
    ):  # fmt: skip
        entries.clear()
        entries.put()
        entries.plain.hset(entries.key, mapping=fields)
        entries.refuses({"n": 2})
        entries.refuses({}, {"rounds": 1})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """JSON, or what was JSON before some of its bytes were changed."""
    data = bytearray(json.dumps(draw(JSON), ensure_ascii=draw(st.booleans())), "utf-8", "replace")
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(data)))
        new = draw(st.sampled_from([*b'0123456789-+.eEInNaxX"\\[]{},: \x00\x80\xc3\xed\xff', -1]))
        data[at : at + draw(st.integers(0, 1))] = b"" if new < 0 else bytes([new])
    return bytes(data)


@settings(max_examples=150, deadline=None, database=None, suppress_health_check=[*HealthCheck])
@given(st.lists(texts(), min_size=1, max_size=4), st.booleans())
def test_no_block_is_changed_that_can_not_be_read(given_: list[bytes], shuffled: bool) -> None:
    place = _fuzzed()
    place.put()
    place.plain.rpush(f"{place.key}:rounds", *given_)
    try:
        held = place.held()
    except DamagedBlock:
        held = None
    after = place.amend({"n": 2}) if shuffled else place.amend({}, {"rounds": 2})
    if after is not None:
        assert held is not None
        assert equal(assemble(after.entries), assemble(place.held().entries))  # type: ignore[union-attr]


_places: list[Place] = []


def _fuzzed() -> Place:
    if not _places:
        _places.append(Place("native"))
    return _places[0]


# ---------------------------------------------------------------- servers


@pytest.mark.parametrize("shape", SHAPES)
def test_a_server_without_the_script_and_a_cluster(shape: str) -> None:
    for url in ("", servers.rediscluster()):
        place = Place(shape, url)
        place.put()
        for number in (2, 3):
            if not url:
                place.plain.script_flush()
            assert_is(place.amend({"n": number}), {**START, "n": number})
        place.close()


def test_a_connection_that_the_server_has_closed_meanwhile_is_sent_nothing(native: Place) -> None:
    native.put()
    wire = native.collection._wire
    (address,) = wire.masters()
    native.plain.client_kill_filter(_id=wire.ask(address, ("CLIENT", "ID")))
    assert_is(native.amend({"n": 2}), {**START, "n": 2})


def test_who_may_write_no_more_sends_no_script_a_second_time(native: Place) -> None:
    native.put()
    native.plain.script_flush()
    assert_refused_a_second_request(native)


def test_who_may_write_no_more_carries_nothing_out_after_a_look(whole: Place) -> None:
    whole.put()
    assert_refused_a_second_request(whole)


def assert_refused_a_second_request(place: Place) -> None:
    """Where the lease runs out behind the first request, no second one is made, and nothing is
    done."""
    asked: list[int] = []

    def check() -> None:
        asked.append(0)
        if len(asked) > 1:
            raise Refused("the lease has run out")

    with pytest.raises(Refused):
        Retry(check=check)(place.amend, {"n": 2})
    assert_is(place.held(), START)


def test_who_may_run_no_script_looks_and_changes(tmp_path: Path) -> None:
    own = Own(tmp_path)
    try:
        with redis.Redis(port=own.port) as plain:
            rules = "on", "nopass", "~*", "+@all", "-@scripting"
            plain.execute_command("ACL", "SETUSER", "poor", *rules)
        place = Place("native", f"redis://poor@127.0.0.1:{own.port}/0")
        place.put()
        for number in (2, 3):
            assert_is(place.amend({"n": number}), {**START, "n": number})
        with redis.Redis(port=own.port) as plain:
            told = plain.info("commandstats")
        asked = [told.get(f"cmdstat_{name}", {}) for name in ("eval", "evalsha")]
        assert sum(each.get("rejected_calls", 0) for each in asked) == 1
        place.close()
    finally:
        own.stop()


def test_what_the_replicas_lack_is_not_acknowledged(tmp_path: Path) -> None:
    own = Own(tmp_path)
    try:
        made = Place("native", f"redis://127.0.0.1:{own.port}/0")
        made.put()
        wary = Place("native", f"redis://127.0.0.1:{own.port}/0", clear=False, replicas=1,
                     replicasTimeoutMS=1)  # fmt: skip
        held = made.held()
        assert held is not None
        third = cut(Aggregate(KEY, {**START, "n": 3}), made.collection.at.rules("Game"))
        for number, write in enumerate(
            (
                lambda: wary.collection.exchange(KEY, held, third),
                lambda: wary.collection._watching.amend(KEY, {"n": 4}, {}),
                lambda: wary.amend({"n": 2}),
            )
        ):
            with pytest.raises(Transient, match="0 of 1 replicas") as caught:
                write()
            assert caught.value.unknown
            # A script may go again; what looks first would find what it has done itself.
            assert caught.value.given_up == (number == 0)
        assert_is(made.held(), {**START, "n": 2})
        note = wary.collection.note("epoch")
        for _ in range(2):  # also where it finds what it has written
            with pytest.raises(Transient, match="0 of 1 replicas"):
                note.change(None, "a")
        assert note.read() == "a"
        assert not note.change(None, "b")
        made.close()
        wary.close()
    finally:
        own.stop()


# ---------------------------------------------------------------- others at the same time


def test_no_change_of_two_at_once_is_lost(place: Place) -> None:
    place.put()
    others = [Place(place.shape, clear=False) for _ in range(2)]

    def change(number: int) -> None:
        at = others[number % 2]
        assert at.amend({f"f{number}": number}) is not None
        assert at.amend({}, {"rounds": number}) is not None

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(change, range(60)))
    held = place.held()
    assert held is not None
    value = assemble(held.entries)
    assert sorted(value["rounds"][1:]) == [*range(60)]  # type: ignore[index,arg-type,type-var]
    assert value == {**START, **{f"f{n}": n for n in range(60)}, "rounds": value["rounds"]}
    for other in others:
        other.store.close()


def test_what_is_deleted_and_put_again_is_changed_whole_or_not(place: Place) -> None:
    """What is told after a change is the old block or the new one with it, nothing in between."""
    first = {**START, "rounds": [0] * 3}
    second: Record = {"id": KEY, "n": 0, "second": True, "rounds": [1] * 4}
    place.put(first)

    def replaced() -> None:
        for value in [second, first] * 60:
            place.collection.delete([Address(KEY)])
            place.put(value)

    other = Place(place.shape, clear=False)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(replaced)
        number = 0
        while not running.done():
            number += 1
            found = other.amend({"n": number})
            if found is not None:
                value = assemble(found.entries)
                assert value in ({**first, "n": number}, {**second, "n": number})
        running.result()
    other.store.close()


# ---------------------------------------------------------------- feeds


@pytest.mark.parametrize("feed", ["replication", "tracking"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_feed_takes_it_for_one_change_of_the_block(shape: str, feed: str) -> None:
    place = Place(shape, feed=feed)
    try:
        place.put()
        place.amend({"n": 2})  # a script that the server has
        journal = place.collection.journal("amend")
        reader = journal.open(json.loads(json.dumps(journal.prepare())))
        for change in (({"n": 3}, {}), ({}, {"rounds": 1}), ({"absent": None}, {})):
            assert place.collection.amend(KEY, *change) is not None
            touches, _, _ = drained(reader, journal)
            assert [(touch.key, touch.deleted) for touch in touches] == [(KEY, False)]
        place.refuses({"n": ObjectId(bytes(12))}, {"rounds": 1})
        assert drained(reader, journal)[0] == []
        reader.close()
        journal.drop()
    finally:
        place.close()
