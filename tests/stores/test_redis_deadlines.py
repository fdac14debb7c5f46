"""Deadlines of single fields of a hash, on a Valkey of the tests' own: Debian's Redis has none."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import redis

from migrator.errors import DoesNotFit, Refused
from migrator.exchange import Exchanging
from migrator.model import value as v
from migrator.model.block import Aggregate, Block, Patch, cut
from migrator.model.layouts import redis_native
from migrator.model.move import At, Layout
from migrator.model.value import Record, Value
from migrator.ports import How, StoreSettings
from migrator.stores.redis import commands, open_store
from migrator.stores.redis.collection import RedisCollection
from migrator.stores.redis.journal import RedisJournal
from migrator.stores.redis.native import NativeForm
from migrator.stores.redis.store import RedisStore
from migrator.testing.contract.harness import assert_fields_end
from tests.contract import own_redis
from tests.contract.own_redis import Own
from tests.stores.test_redis_feed import NEVER_SENT, drained

SOON = 4_102_444_800_000
MOMENT = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)
USER = redis_native("u:{id}", "hash", ends=("u:{id}", "deadlines"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    made = Own(tmp_path_factory.mktemp("valkey"), program=own_redis.valkey())
    yield made
    made.stop()


@pytest.fixture
def plain(server: Own) -> Iterator[Any]:
    with redis.Redis.from_url(server.url) as client:
        client.flushdb()
        yield client


@pytest.fixture
def store(server: Own, plain: Any) -> Iterator[RedisStore]:
    made = open_store(StoreSettings("cache", server.url))
    assert isinstance(made, RedisStore)
    yield made
    made.close()


def at(store: RedisStore, layout: Layout = USER) -> RedisCollection:
    return store.collection("user", At("cache", "user", ("/user/*",), layout))


def put(place: RedisCollection, id: Value, value: Record, expires: int | None = None) -> Block:
    block = cut(Aggregate(id, value, expires), place.at.rules(place.cls))
    place.write([block])
    return block


def moments(plain: Any, key: str, *fields: str) -> Any:
    return plain.execute_command("HPEXPIRETIME", key, "FIELDS", len(fields), *fields)


def test_both_readers_see_them_and_a_write_sets_them(store: RedisStore, plain: Any) -> None:
    plain.hset("u:1", mapping={"name": "ann", "token": "x", b"\xff": "y"})
    plain.execute_command("HPEXPIREAT", "u:1", SOON + 1, "FIELDS", 2, "token", b"\xff")
    plain.hset("u:2", mapping={"name": "bob"})
    place = at(store)
    late = MOMENT + dt.timedelta(milliseconds=1)
    for reader in (place, place.observer()):
        page = reader.page(None, None, 10)
        assert not page.damaged
        assert {b.id: b.entries[""] for b in page.blocks} == {
            "1": {
                "name": "ann", "token": "x", "\udcff": "y",
                "ends": {"token": late, "\udcff": late},
            },
            "2": {"name": "bob", "ends": {}},
        }  # fmt: skip
    put(place, "3", {"a": "1", "b": "2", "c": "3", "ends": {"a": MOMENT, "b": late}}, SOON + 9)
    assert moments(plain, "u:3", "a", "b", "c") == [SOON, SOON + 1, -1]
    assert plain.pexpiretime("u:3") == SOON + 9
    put(place, "3", {"a": "1", "ends": {}})
    assert moments(plain, "u:3", "a") == [-1]


def test_a_part_beside_the_record_may_have_them(store: RedisStore, plain: Any) -> None:
    layout = redis_native(
        "u:{id}", seen=("u:{id}:seen", "hash of json"), until=("u:{id}:seen", "deadlines")
    )
    place = at(store, layout)
    whole: Record = {"name": "ann", "seen": {"x": [1], "y": 2}, "until": {"y": MOMENT}}
    block, none = put(place, "1", whole), put(place, "2", {"n": "b", "seen": {}, "until": {}})
    assert moments(plain, "u:1:seen", "x", "y") == [-1, SOON]
    for reader in (place, place.observer()):
        assert reader.read(["1", "2"]) == [block, none]
    assert list(place._form.touched(b"u:1:seen")) == [(b"u:1", False)]
    assert place.count() == 2
    assert_fields_end(place, "3", {"name": "ann", "seen": {"x": [1], "y": 2}}, "x")
    assert_fields_end(at(store), "4", {"name": "ann", "token": "x"}, "token")


def test_changes_keep_those_of_other_fields(store: RedisStore, plain: Any) -> None:
    place = at(store)
    before = put(place, "1", {"a": "1", "b": "2", "ends": {"a": MOMENT}})
    place.patch([Patch("1", {"": {"a": "1", "b": "3", "ends": {"a": MOMENT}}})])
    assert (plain.hget("u:1", "b"), moments(plain, "u:1", "a", "b")) == (b"3", [SOON, -1])
    after = cut(Aggregate("1", {"a": "1", "ends": {}}), place.at.rules(place.cls))
    assert isinstance(place, Exchanging)
    assert not place.exchange("1", before, after)
    (held,) = place.read(["1"])
    assert place.exchange("1", held, after)
    assert moments(plain, "u:1", "a") == [-1]


def test_a_deadline_that_has_passed_is_the_end_of_its_field(store: RedisStore, plain: Any) -> None:
    put(at(store), "1", {"a": "1", "b": "2", "ends": {"a": dt.datetime(2001, 1, 1, tzinfo=dt.UTC)}})
    assert plain.hgetall("u:1") == {b"b": b"2"}


def test_a_hash_that_changes_meanwhile_is_read_again(
    store: RedisStore, plain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(at(store), "1", {"a": "1", "ends": {"a": MOMENT}})
    names, looks = NativeForm._names, []

    def then_changed(form: NativeForm, run: Any, keys: Sequence[bytes]) -> Any:
        found = names(form, run, keys)
        looks.append(keys)
        if len(looks) == 1:
            plain.hset("u:1", "b", "2")
            plain.execute_command("HPEXPIREAT", "u:1", SOON + 5, "FIELDS", 1, "b")
        return found

    monkeypatch.setattr(NativeForm, "_names", then_changed)
    (block,) = at(store).read(["1"])
    late = MOMENT + dt.timedelta(milliseconds=5)
    assert block is not None
    assert block.entries == {"": {"a": "1", "b": "2", "ends": {"a": MOMENT, "b": late}}}
    assert len(looks) == 2


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ({"gone": MOMENT}, "deadline of gone"),
        ({"a": MOMENT + dt.timedelta(microseconds=1)}, "in milliseconds"),
        ({"a": dt.datetime(1969, 1, 1, tzinfo=dt.UTC)}, "from 1970"),
        ({"a": v.instant(2**46 * 1_000_000)}, "to 4199"),
        ({"a": MOMENT.replace(tzinfo=None)}, "no timestamp"),
        ({"a": SOON}, "no timestamp"),
        ([MOMENT], "no record"),
    ],
)
def test_what_does_not_fit_is_named(store: RedisStore, plain: Any, ends: Value, why: str) -> None:
    with pytest.raises(DoesNotFit, match=why) as error:
        put(at(store), "1", {"a": "1", "ends": ends})
    assert error.value.path == "ends"
    assert not plain.exists("u:1")


def test_timestamps_are_held_as_deadlines_alone(store: RedisStore) -> None:
    without = at(store, redis_native("u:{id}")).needs_tag(MOMENT)
    assert without is not None
    assert without.how is How.REFUSED
    assert at(store).needs_tag(MOMENT) is None
    with pytest.raises(DoesNotFit):
        put(at(store), "1", {"a": MOMENT, "ends": {}})


@pytest.mark.parametrize(
    "layout",
    [
        redis_native("u:{id}", ends=("u:{id}:ends", "deadlines")),
        redis_native("u:{id}", "json", ends=("u:{id}", "deadlines")),
        redis_native("u:{id}", "deadlines", field="ends"),
        redis_native("u:{id}", "deadlines"),
    ],
)
def test_deadlines_are_those_of_a_hash(store: RedisStore, layout: Layout) -> None:
    with pytest.raises(Refused, match=r"deadlines of no hash|can't hold the fields"):
        at(store, layout)


def test_a_move_that_follows_writes_sees_what_becomes_of_them(
    store: RedisStore, plain: Any
) -> None:
    plain.hset("u:1", mapping={"a": "1", "b": "2"})
    journal = at(store).journal("deadlines")
    assert isinstance(journal, RedisJournal)
    feed = journal.open(journal.prepare())
    plain.execute_command("MSETEX", 2, "u:8", "x", "u:9", "x", "PX", 600_000)
    plain.execute_command("DELIFEQ", "u:9", "x")
    assert {touch.key for touch in drained(feed, journal)[0]} == {"8", "9"}
    plain.execute_command("HPEXPIREAT", "u:1", SOON, "FIELDS", 1, "a")
    assert [touch.key for touch in drained(feed, journal)[0]] == ["1"]
    plain.execute_command("HPERSIST", "u:1", "FIELDS", 1, "a")
    assert [touch.key for touch in drained(feed, journal)[0]] == ["1"]
    for life in (300, 3_000, 30_000):  # until its end comes after all that is told of its begin
        plain.hset("u:1", "a", "1")
        plain.execute_command("HPEXPIRE", "u:1", life, "FIELDS", 1, "a")
        assert {touch.key for touch in drained(feed, journal)[0]} == {"1"}
        if plain.hexists("u:1", "a"):
            break
    end = time.monotonic() + 90
    while not drained(feed, journal)[0]:
        assert time.monotonic() < end, "the end of a field was not told"
    feed.close()


def test_every_command_that_writes_is_known_here(plain: Any) -> None:
    told = plain.execute_command("COMMAND")
    writing = {name.upper() for name, each in told.items() if "write" in each["flags"]}
    assert {name for name in writing if name.encode() not in commands._READINGS} <= NEVER_SENT


def test_the_server_is_named(store: RedisStore) -> None:
    info = store.ping()
    assert info.product == "Valkey"
    assert int(info.version.split(".")[0]) >= 9
    assert any("layout native" in remark for remark in info.remarks)
