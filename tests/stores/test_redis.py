"""Redis: what lies there as the plain driver reads it, refusals, deadlines, findings."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import redis

from migrator.errors import DamagedBlock, DoesNotFit, Refused, Terminal, Transient
from migrator.model import value as v
from migrator.model.block import Address, Aggregate, Block, Patch, cut
from migrator.model.layouts import redis_native
from migrator.model.move import At, Layout
from migrator.model.value import Record, Value
from migrator.ports import StoreSettings
from migrator.stores.redis import names, open_store
from migrator.stores.redis import wire as wires
from migrator.stores.redis.collection import RedisCollection
from migrator.stores.redis.findings import (
    field_deadlines,
    nested,
    of_both_sides,
    of_target,
    without_field_deadlines,
)
from migrator.stores.redis.keyed import KeysForm
from migrator.stores.redis.listing import Listing, Walker
from migrator.stores.redis.store import RedisStore
from migrator.stores.redis.wire import Unit
from tests.contract import servers
from tests.contract.own_redis import Own, warmed
from tests.ending import waited

EXAMPLES = (
    Path(os.environ.get("MIGRATOR_SHARED", Path(__file__).parents[3] / "shared"))
    / "data"
    / "noam-examples.json"
)
ETF = ("/Player/*/*",)


def store(url: str, **options: object) -> RedisStore:
    made = open_store(StoreSettings("cache", url, options))
    assert isinstance(made, RedisStore)
    return made


@pytest.fixture
def plain() -> Iterator[redis.Redis]:
    """The plain driver on an empty database."""
    with redis.Redis.from_url(servers.redis()) as client:
        client.flushdb()
        yield client
        client.flushdb()


@pytest.fixture
def cache(plain: redis.Redis) -> Iterator[RedisStore]:
    made = store(servers.redis())
    yield made
    made.close()


@pytest.fixture
def own(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Own]:
    """A server with the options of the parameter."""
    server = Own(tmp_path, *getattr(request, "param", ()))
    yield server
    server.stop()


def at(cache: RedisStore, name: str, layout: str | Layout = "hash", *rules: str) -> RedisCollection:
    return cache.collection(name, At("cache", name, rules or (f"/{name}/*/*",), layout))


def put(place: RedisCollection, id: Value, value: Record, expires: int | None = None) -> Block:
    block = cut(Aggregate(id, value, expires), place.at.rules(place.cls))
    place.write([block])
    return block


MARY: Record = {
    "username": "mary",
    "firstName": "Mary",
    "lastName": "Wilson",
    "games": [
        {"game": "Game:2345", "opponent": "Player:rick"},
        {"game": "Game:2611", "opponent": "Player:ann"},
    ],
}


def test_answers_that_come_together_in_parts_and_as_nothing(
    cache: RedisStore, plain: redis.Redis
) -> None:
    """Several units in one request, whose answers are more than comes at once."""
    large = "x" * 300_000
    plain.set("large", large)
    plain.rpush("list", 1)
    keys = [b"large", b"absent", b"list", b"large", b"absent"]
    found = cache._wire.run([Unit(key, [("GET", key)]) for key in keys])
    assert [len(reply[0] or b"") for reply in found if not isinstance(reply[0], Exception)] == [
        300_000, 0, 300_000, 0,
    ]  # fmt: skip
    assert isinstance(found[2][0], redis.ResponseError)


# ---------------------------------------------------------------- what the plain driver reads


@pytest.mark.skipif(not EXAMPLES.exists(), reason="../shared/data is absent")
def test_the_literatures_hash(cache: RedisStore, plain: redis.Redis) -> None:
    literature = json.loads(EXAMPLES.read_text())["layouts"]
    expected = literature["Redis, hash, key Player:mary, ETF"]
    put(at(cache, "Player"), "mary", MARY)
    held: Any = plain.hgetall("Player:mary")
    assert plain.type("Player:mary") == b"hash"
    assert held.pop(b"_migrator") == b"{}"
    games = json.loads(held.pop(b"games"))
    assert {**{k.decode(): x.decode() for k, x in held.items()}, "games": games} == expected


def test_keys_and_a_directory(cache: RedisStore, plain: redis.Redis) -> None:
    rules = ("/Player/*/games[*]", "/Player/*/*")
    put(at(cache, "Player", "keys", *rules), "mary", MARY)
    found: Any = {key: plain.type(key) for key in sorted(plain.keys("*Player*"))}
    entries = ("firstName", "games[0]", "games[1]", "lastName", "username")
    assert found == {b"{Player:mary}": b"hash"} | {
        f"{{Player:mary}}:{entry}".encode(): b"string" for entry in entries
    }
    assert plain.get("{Player:mary}:firstName") == b"Mary"
    second: Any = plain.get("{Player:mary}:games[1]")
    assert json.loads(second) == {"game": "Game:2611", "opponent": "Player:ann"}
    directory: Any = plain.hkeys("{Player:mary}")
    assert set(directory) == {entry.encode() for entry in entries}


def test_no_entry_stays_behind_its_directory(
    cache: RedisStore, plain: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    games = at(cache, "Game", "keys", "/Game/*/*")
    put(games, "a", {"x": 1, "y": 2})
    games.patch([Patch("a", {}, ("y",))])
    assert set(plain.keys()) == {b"{Game:a}", b"{Game:a}:x"}
    look = KeysForm._names_of

    def looked(self: KeysForm, keys: Any) -> Any:
        found = look(self, keys)
        monkeypatch.undo()
        games.patch([Patch("a", {"late": 1})])  # by somebody else, just behind
        return found

    monkeypatch.setattr(KeysForm, "_names_of", looked)
    put(games, "a", {"x": 3})
    assert set(plain.keys()) == {b"{Game:a}", b"{Game:a}:x"}


def test_one_string(cache: RedisStore, plain: redis.Redis) -> None:
    put(at(cache, "Player", "string"), "mary", MARY)
    held: Any = plain.get("Player:mary")
    assert json.loads(held) == MARY


def test_kinds_as_a_reader_expects_them(cache: RedisStore, plain: redis.Redis) -> None:
    record: Record = {
        "n": 5, "big": 2**70, "d": 1.5, "no": None, "yes": True, "digits": "5", "zip": "01234",
        "raw": b"\xff", "price": Decimal("1.50"),
        "id": v.ObjectId(bytes(12)), "list": [1, "a"],
    }  # fmt: skip
    put(at(cache, "Player"), "x", record)
    held: Any = plain.hgetall("Player:x")
    assert {k: held[k] for k in (b"n", b"big", b"d", b"no", b"yes", b"digits", b"raw")} == {
        b"n": b"5", b"big": b"1180591620717411303424", b"d": b"1.5", b"no": b"null",
        b"yes": b"true", b"digits": b"5", b"raw": b"\xff",
    }  # fmt: skip
    side = json.loads(held[b"_migrator"])["tags"]
    assert side["digits"] == "text"
    assert side["id"] == "objectid"
    assert "zip" not in side


def test_a_note_that_no_longer_fits_is_ignored(cache: RedisStore, plain: redis.Redis) -> None:
    place = at(cache, "Player")
    put(place, "x", {"id": v.ObjectId(bytes(12)), "n": 5, "digits": "5"})
    plain.hset("Player:x", mapping={"id": "no longer", "n": "seven", "digits": "6"})
    for reader in (place, place.observer()):
        (found,) = reader.read(["x"])
        assert found is not None
        assert found.entries == {"id": "no longer", "n": "seven", "digits": "6"}


def test_numbers_out_of_range_are_text_to_both_readers(
    cache: RedisStore, plain: redis.Redis
) -> None:
    place = at(cache, "Player")
    put(place, "x", {"n": 5, "list": [1], "deep": {"a": 1.5}})
    odd = {"n": "1e999", "list": "[2,-1e999]", "deep": '{"a":[1e400]}'}
    plain.hset("Player:x", mapping={**odd, "max": "1.7976931348623157e+308"})  # type: ignore[arg-type]
    for reader in (place, place.observer()):
        (found,) = reader.read(["x"])
        assert found is not None
        assert found.entries == {**odd, "max": 1.7976931348623157e308}


def test_a_hash_of_somebody_else_is_text(cache: RedisStore, plain: redis.Redis) -> None:
    plain.hset("Player:y", mapping={"age": "5", "a.b": "{}", b"\x8a": b"\x80\x04K"})  # type: ignore[dict-item]
    place = at(cache, "Player")
    for reader in (place, place.observer()):
        (found,) = reader.read(["y"])
        assert found is not None
        assert found.entries == {"age": "5", "a\\.b": "{}", "\udc8a": b"\x80\x04K"}
    place.patch([Patch("y", {"n": 7})])
    (found,) = place.read(["y"])
    assert found is not None
    assert found.entries == {"age": "5", "a\\.b": "{}", "\udc8a": b"\x80\x04K", "n": 7}


def test_an_append_sends_the_round_alone(own: Own) -> None:
    """On a server of its own: these are bytes of all its clients."""
    cache, plain = store(own.url), redis.Redis(port=own.port)
    rules = ("/Game/*/rounds[*]", "/Game/*")
    for layout in ("hash", "keys"):
        place = at(cache, "Game", layout, *rules)
        put(place, "1", {"id": "1", "rounds": [{"moves": "x" * 1000} for _ in range(50)]})
        before: Any = plain.info("stats")
        place.patch([Patch("1", {"rounds[50]": {"moves": "y" * 1000}})])
        after: Any = plain.info("stats")
        assert after["total_net_input_bytes"] - before["total_net_input_bytes"] < 2_000
        assert after["total_net_output_bytes"] - before["total_net_output_bytes"] < 10_000
        place.drop()
    cache.close()
    plain.close()


# ---------------------------------------------------------------- identifiers


@pytest.mark.parametrize(
    "suffix",
    [b"mary", b"#x", b'#"x"', b"#5", b'#"#x"', b'#"5" {"":"int64"}', b"\xff", b"#\xff", b"", b"#",
     b"a:b", b"}", b"{x}", b"%7D", b"%257D", b"#[1]", b"# 5", b"#5 {}", b'#"" {"":"bytes"}'],
)  # fmt: skip
def test_any_key_is_some_identifiers(suffix: bytes) -> None:
    id_ = names.id_of(suffix)
    assert names.id_bytes(id_) == suffix
    assert names.observed_id(suffix) == id_
    assert names.unbraced(names.braced(suffix)) == suffix
    assert b"}" not in names.braced(suffix)


# ---------------------------------------------------------------- walks


def test_keys_that_come_twice_are_given_once() -> None:
    keys = [b"k%d" % n for n in range(50)]
    walker = Walker(lambda: iter([keys[:30], keys[20:], keys]))
    found, position = [], None
    while True:
        page, position = walker.page(None, position, 7)
        found += page
        if position is None:
            break
    assert sorted(found) == sorted(keys)
    assert Listing(iter([keys, keys])).count() == 50


def test_a_walk_that_begins_again_sees_what_came(cache: RedisStore) -> None:
    place = at(cache, "Player")
    put(place, "a", {"n": 1})
    reader = place.observer()
    assert len(reader.page(None, None, 9).blocks) == 1
    put(place, "b", {"n": 1})
    assert len(reader.page(None, None, 9).blocks) == 2


def test_large_pages_end_early(cache: RedisStore) -> None:
    place = at(cache, "Player")
    for start in range(0, 500, 50):
        place.write([Block(f"{n}", {"x": "y" * 100_000}) for n in range(start, start + 50)])
    page = place.page(None, None, 1000)
    assert page.next is not None
    rest = place.page(None, page.next, 1000)
    assert len({b.id for b in page.blocks} | {b.id for b in rest.blocks}) == 500


# ---------------------------------------------------------------- deadlines


@pytest.mark.parametrize("layout", ["hash", "keys", "string"])
def test_deadlines_are_absolute(cache: RedisStore, plain: redis.Redis, layout: str) -> None:
    place = at(cache, "Player", layout)
    deadline = int(time.time() * 1000) + 1_000_500
    put(place, "a", {"n": 1}, deadline)
    key = "{Player:a}" if layout == "keys" else "Player:a"
    assert all(plain.pexpiretime(k) == deadline for k in plain.scan_iter("*Player:a*"))
    put(place, "past", {"n": 1}, int(time.time() * 1000) - 5)
    assert place.read(["past"]) == [None]
    assert {*plain.scan_iter("*Player*")} >= {key.encode()}
    assert not [*plain.scan_iter("*past*")]
    put(place, "soon", {"n": 1}, int(time.time() * 1000) + 100)
    time.sleep(0.15)
    assert place.read(["soon"]) == [None]
    assert place.observer().read(["soon"]) == [None]
    place.patch([Patch("a", {"m": 2})])
    assert all(plain.pexpiretime(k) == deadline for k in plain.scan_iter("*Player:a*"))
    with pytest.raises(DoesNotFit):
        put(place, "far", {"n": 1}, 2**63)


# ---------------------------------------------------------------- refusals


def test_a_key_of_another_type_is_no_block_and_not_replaced(
    cache: RedisStore, plain: redis.Redis
) -> None:
    place = at(cache, "Player")
    put(place, "a", {"n": 1})
    plain.set("Player:b", "text")
    assert [b.id for b in place.page(None, None, 10).blocks] == ["a"]
    assert [f[1] for f in place.findings()] == ["redis-types"]
    assert [found and found.id for found in place.read(["a", "b"])] == ["a", None]
    with pytest.raises(Terminal, match="Player:b"):
        place.exchange("b", None, Block("b", {"n": 2}))
    plain.set("Game:c", "no json")
    page = at(cache, "Game", "string").page(None, None, 10)
    with pytest.raises(DamagedBlock, match="Game:c can't be read"):
        at(cache, "Game", "string").read(["c"])
    assert [key for key, _ in page.damaged] == ["c"]
    assert at(cache, "Game", "string").sample(10).damaged == page.damaged


def test_drop_leaves_other_keys(cache: RedisStore, plain: redis.Redis) -> None:
    plain.set("Player:note", "mine")
    plain.hset("Other:a", "x", "y")
    place = at(cache, "Player")
    put(place, "a", {"n": 1})
    place.drop()
    assert {*plain.scan_iter()} == {b"Player:note", b"Other:a"}


def test_unknown_layouts_and_options() -> None:
    cache = store("redis://127.0.0.1:1/0")
    bad = ("rows", Layout("hash", {"x": 1}), Layout("native", {"keys": {"": ["u", "hash"]}}),
           redis_native("u:{id}", "list"), redis_native("u:{id}{id}"),
           redis_native("u:{id}", "tree"))  # fmt: skip
    for layout in bad:
        with pytest.raises(Refused):
            at(cache, "Player", layout)
    cluster = store("rediscluster://127.0.0.1:1")
    with pytest.raises(Refused, match="slots"):
        at(cluster, "Player", redis_native("u:{id}", seen=("u:{id}:seen", "set")))
    for url, options in (("redis://h/x", {}), ("redis://h", {"colour": 1}), ("redis://", {}),
                         ("rediscluster://h/3", {}), ("redis://h", {"database": "1"})):  # fmt: skip
        with pytest.raises(Refused):
            store(url, **options)  # type: ignore[arg-type]


def test_nobody_there_is_transient_and_known() -> None:
    place = at(store("redis://127.0.0.1:1/0"), "Player")
    with pytest.raises(Transient) as caught:
        place.write([Block("a", {"n": 1})])
    assert not caught.value.unknown


@pytest.mark.parametrize("own", [("--requirepass", "s3cret")], indirect=True)
def test_passwords_are_asked_for_and_never_shown(own: Own) -> None:
    for secret in (None, lambda: "wr0ng"):
        made = open_store(StoreSettings("cache", own.url, secret=secret))
        with pytest.raises(Terminal) as caught:
            made.ping()
        assert "wr0ng" not in str(caught.value)
        assert "password" in caught.value.hint
    made = open_store(StoreSettings("cache", own.url, secret=lambda: "s3cret"))
    assert made.ping().version.startswith("7.")


def _fill(place: RedisCollection) -> None:
    for n in range(100):
        place.write([Block(f"{n}", {"x": "y" * 100_000})])


@pytest.mark.parametrize("own", [("--maxmemory", "3mb")], indirect=True)
def test_out_of_memory_names_what_to_do(own: Own) -> None:
    place = at(store(own.url), "Player")
    with pytest.raises(Terminal, match="maxmemory"):
        _fill(place)
    with redis.Redis(port=own.port) as plain:
        # What the server gives back of a connection's buffers must make no room; and full as it
        # is then, it would take no MULTI that reads either.
        plain.config_set("maxmemory", "2mb")
        before = plain.dbsize()
        with pytest.raises(Terminal, match="maxmemory"):
            place.write([Block("0", {"x": "z" * 100_000})])
        assert plain.dbsize() == before
        plain.config_set("maxmemory", "8mb")
    (kept,) = place.read(["0"])
    assert kept is not None
    assert kept.entries["x"] == "y" * 100_000
    codes = [code for _, code, _ in place.target_findings(10, 10_000_000)]
    assert codes == ["redis-persistence", "redis-memory"]


def test_a_late_answer_is_unknown(own: Own) -> None:
    put(patient := at(store(own.url), "Player"), "a", {"n": 1})
    place = at(store(own.url, socketTimeoutMS=200), "Player")
    warmed(lambda: place.read(["a"]))
    with redis.Redis(port=own.port) as plain:
        plain.client_pause(300_000, all=False)  # or nobody could end it
        with pytest.raises(Transient) as caught:
            place.write([Block("a", {"n": 2})])
        assert caught.value.unknown
        (held,) = place.read(["a"])  # not by the connection on which that answer comes
        assert held is not None
        assert held.entries == {"n": 1}
        plain.client_unpause()
    (found,) = patient.read(["a"])
    assert found is not None


def test_what_came_too_late_to_be_watched_is_not_waited_for_again(
    own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = store(own.url, socketTimeoutMS=100)._wire
    warmed(lambda: wire.run([Unit(b"a", [("GET", b"a")])]))
    sent: list[object] = []
    exchange = wires._exchange

    def noted(connection: Any, commands: Any) -> Any:
        sent.extend(commands)
        return exchange(connection, commands)

    monkeypatch.setattr(wires, "_exchange", noted)
    with redis.Redis(port=own.port) as plain:
        plain.client_pause(300_000)
        with pytest.raises(Transient), wire.watching(b"a") as session:
            session.ask(("GET", b"a"))
        assert sent == [("WATCH", b"a"), ("GET", b"a")]


def test_a_store_that_is_closed_meanwhile_does_what_is_under_way(cache: RedisStore) -> None:
    with cache._wire.watching(b"a") as session:
        cache._wire.close()
        assert session.ask(("GET", b"a")) == [None]


def test_a_forked_child_asks_by_connections_of_its_own(cache: RedisStore) -> None:
    wire = cache._wire
    (address,) = wire.masters()

    def number() -> object:
        return wire.ask(address, ("CLIENT", "ID"))

    mine = number()
    if not (child := os.fork()):
        own = False
        try:
            own = number() != mine
        finally:
            os._exit(not own)
    assert waited(child) == 0
    assert number() == mine


def test_a_connection_that_the_server_closes_before_it_answers_has_broken(
    cache: RedisStore,
) -> None:
    wire = cache._wire
    (address,) = wire.masters()

    def closes() -> None:
        with wire._connection(address, writing=True) as lent:
            (number,) = wires._exchange(lent, [("CLIENT", "ID")])
            wires._exchange(lent, [("CLIENT", "KILL", "ID", number, "SKIPME", "no"), ("GET", "a")])

    with pytest.raises(Transient) as caught:
        closes()
    assert caught.value.unknown


def test_a_server_that_died_is_unknown_for_writes_alone(own: Own) -> None:
    place = at(store(own.url), "Player")
    put(place, "a", {"n": 1})
    own.stop()
    with pytest.raises(Transient) as caught:
        place.read(["a"])
    assert not caught.value.unknown


def test_a_replica_says_so(own: Own) -> None:
    made = store(own.url)
    with redis.Redis(port=own.port) as plain:
        plain.replicaof("127.0.0.1", 1)
    assert "replica" in made.ping().remarks[0]
    place = at(made, "Player")
    with pytest.raises(Transient, match="replica"):
        place.write([Block("a", {"n": 2})])
    assert ("error", "redis-replica") in [f[:2] for f in place.findings()]


@pytest.mark.parametrize(
    "own", [("--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb")], indirect=True
)
def test_what_an_expert_would_say(own: Own) -> None:
    place = at(store(own.url), "Player")
    found = {code: text for _, code, text in place.target_findings(1000, 1000)}
    assert found.keys() == {"redis-persistence", "redis-eviction"}
    assert "restart loses everything" in found["redis-persistence"]
    assert "redis-memory" in {f[1] for f in place.target_findings(10, 200_000_000)}


def test_findings_that_only_newer_or_larger_servers_show() -> None:
    newer = {"role": "master", "db0": "keys=3,expires=0,avg_ttl=0,subexpiry=2"}
    assert [f[1] for f in field_deadlines([newer], 0)] == ["redis-field-expiry"]
    assert not [*field_deadlines([newer], 1)]
    assert not [*of_both_sides([newer])]
    old, new = {"valkey_version": "8.1.0"}, {"valkey_version": "9.0.1"}
    for without in ({"redis_version": "7.2.5"}, {"redis_version": "7.2.4"} | old):
        found = [f[1] for f in without_field_deadlines([without])]
        assert found == ["redis-no-field-expiry"]
    for having in ({"redis_version": "7.4.0"}, {"redis_version": "7.2.4"} | new):
        assert not [*without_field_deadlines([having])]
    with_replicas = {"aof_enabled": "1", "connected_slaves": "2", "total_system_memory": "1000"}
    assert [f[1] for f in of_target([with_replicas], 0, 0, 1)] == ["redis-replicas"]
    assert [f[1] for f in of_target([with_replicas], 1, 0, 2000)] == ["redis-memory"]
    assert [f[1] for f in nested("user", ["user:old", "users", "user"])] == ["redis-nested"]


def test_a_write_waits_for_replicas(own: Own) -> None:
    place = at(store(own.url, replicas=1, replicasTimeoutMS=50), "Player")
    with pytest.raises(Transient, match="0 of 1 replicas") as caught:
        place.write([Block("a", {"n": 1})])
    assert caught.value.unknown


# ---------------------------------------------------------------- types of Redis


def test_types_of_an_application(cache: RedisStore, plain: redis.Redis) -> None:
    plain.hset("user:1", mapping={"name": "ann"})
    plain.rpush("user:1:rounds", '{"n": 1}', "2")
    plain.sadd("user:1:tags", "a", b"\xff")
    plain.hset("user:2", mapping={"name": "bob"})
    layout = redis_native(
        "user:{id}", rounds=("user:{id}:rounds", "list of json"), tags=("user:{id}:tags", "set")
    )
    place = at(cache, "user", layout, "/user/*")
    expected: dict[Value, Record] = {
        "1": {"name": "ann", "rounds": [{"n": 1}, 2], "tags": v.Set(["a", b"\xff"])},
        "2": {"name": "bob", "rounds": [], "tags": v.Set()},
    }
    for reader in (place, place.observer()):
        page = reader.page(None, None, 10)
        assert {b.id: b.entries[""] for b in page.blocks} == expected
    assert place.count() == 2
    put(place, "3", {"name": "eve", "rounds": [3], "tags": v.Set(["x"])})
    assert plain.type("user:3:rounds") == b"list"
    assert plain.smembers("user:3:tags") == {b"x"}
    place.delete([Address("1")])
    assert not plain.exists("user:1", "user:1:rounds", "user:1:tags")
    for bad in ({"name": 5}, {"name": "x", "tags": ["x"]}, {"name": "x", "rounds": [v.Int64(5)]}):
        whole: Record = {"rounds": [], "tags": v.Set(), **bad}
        with pytest.raises(DoesNotFit):
            put(place, "4", whole)
    with pytest.raises(DoesNotFit, match="absent"):
        put(place, "4", {"name": "x", "tags": v.Set()})
    plain.pexpire("user:2", 60_000)
    plain.rpush("user:2:rounds", "1")
    assert [key for key, _ in place.page(None, None, 10).damaged] == ["2"]


@pytest.mark.parametrize(
    ("type_", "command", "expected"),
    [
        ("list", ("RPUSH", "a", b"\xff", "a"), ["a", b"\xff", "a"]),
        ("stream", ("XADD", "5-1", "f", "x"), [{"id": "5-1", "values": {"f": "x"}}]),
        ("integer", ("SET", "-5"), -5),
        ("string", ("SET", "5"), "5"),
        ("json", ("SET", '{"a":1.0}'), {"a": 1.0}),
    ],
)
def test_a_key_of_one_type(
    cache: RedisStore, plain: redis.Redis, type_: str, command: tuple[Any, ...], expected: Value
) -> None:
    plain.execute_command(command[0], "q:1", *command[1:])
    place = at(cache, "q", redis_native("q:{id}", type_, field="held"), "/q/*")
    for reader in (place, place.observer()):
        (found,) = reader.read(["1"])
        assert found is not None
        assert found.entries == {"": {"held": expected}}
    put(place, "2", {"held": expected})
    assert plain.type("q:1") == plain.type("q:2")


@pytest.mark.parametrize("harm", ["deadlines", "another type"])
def test_a_block_whose_keys_make_no_block_is_told_apart_from_the_others(
    cache: RedisStore, plain: redis.Redis, harm: str
) -> None:
    layout = redis_native("u:{id}", seen=("u:{id}:seen", "set"))
    users = at(cache, "u", layout, "/u/*")
    for key in ("1", "2"):
        put(users, key, {"name": "ann", "seen": v.Set((key,))})
    if harm == "deadlines":
        plain.expire("u:1", 1000)
    else:
        plain.set("u:1:seen", "text")
    with pytest.raises(DamagedBlock, match=harm):
        users.read(["1", "2"])
    assert users.read(["2"]) != [None]
    assert [id for id, _ in users.page(None, None, 10).damaged] == ["1"]
