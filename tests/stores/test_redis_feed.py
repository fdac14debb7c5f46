"""The replication stream of Redis: how it is attached, cut, counted, lost and refused."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migrator.errors import FeedLost, Refused, Transient
from migrator.journal import Feed, Touch
from migrator.model.layouts import redis_native
from migrator.model.move import At
from migrator.ports import Json, StoreSettings
from migrator.stores.redis import commands, open_store, stream
from migrator.stores.redis.commands import Spec, Untold, Vocabulary
from migrator.stores.redis.journal import RedisFeed, RedisJournal
from migrator.stores.redis.replica import Replica, Splitter
from tests.contract import own_redis
from tests.contract.own_redis import Own

# Write commands that a server never sends its replicas as they were sent to it.
NEVER_SENT = {
    "BLPOP", "BRPOP", "BLMPOP", "LMPOP", "BZPOPMIN", "BZPOPMAX", "BZMPOP", "ZMPOP", "MIGRATE",
    "XREADGROUP", "EVAL", "EVALSHA", "FCALL", "PFDEBUG",
}  # fmt: skip


def journal_at(url: str, name: str = "run", **options: object) -> RedisJournal:
    found = open_store(StoreSettings("cache", url, options))
    made = found.collection("Game", At("cache", "game", ("/Game/*",))).journal(name)  # type: ignore[attr-defined]
    assert isinstance(made, RedisJournal)
    return made


@pytest.fixture
def own(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Own]:
    """A server with the options of the parameter."""
    server = Own(tmp_path, *getattr(request, "param", ()))
    yield server
    server.stop()


@pytest.fixture
def journal() -> RedisJournal:
    """The journal of an emptied database of the server that tests of feeds share."""
    url = f"redis://127.0.0.1:{own_redis.shared().port}/7"
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    return journal_at(url)


def client(of: RedisJournal, database: int | None = None) -> redis.Redis:
    port = of.wire.servers.seeds[0].port
    return redis.Redis(port=port, db=of.database if database is None else database)


def drained(feed: Feed, of: RedisJournal) -> tuple[list[Touch], Json, list[int]]:
    """The touches up to a marker written now, the last position, and how many came at once."""
    of.mark(mark := f"mark {time.monotonic_ns()}")
    touches: list[Touch] = []
    sizes: list[int] = []
    position: Json = None
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if (found := feed.poll(0.5)) is None:
            continue
        assert not found.whole
        touches += found.touches
        sizes.append(len(found.touches))
        position = found.position
        if mark in found.marks:
            return touches, json.loads(json.dumps(position)), sizes
    raise AssertionError("no marker came")


# ---------------------------------------------------------------- the bytes


def packed(command: list[bytes]) -> bytes:
    return b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%s\r\n" % (len(a), a) for a in command)


@settings(max_examples=100, deadline=None, database=None, suppress_health_check=[*HealthCheck])
@given(
    st.lists(st.lists(st.binary(max_size=120), min_size=1, max_size=12), max_size=8),
    st.lists(st.integers(1, 40), min_size=1, max_size=8),
)
def test_the_stream_gives_the_same_commands_however_its_bytes_come(
    sent: list[list[bytes]], steps: list[int]
) -> None:
    data = b"".join(map(packed, sent))
    splitter = Splitter("cache")
    found = []
    at = turn = 0
    while at < len(data):
        step = steps[turn % len(steps)]
        splitter.feed(data[at : at + step])
        found += splitter.commands()
        at, turn = at + step, turn + 1
    assert [command for command, _ in found] == sent
    assert [size for _, size in found] == [len(packed(command)) for command in sent]


@pytest.mark.parametrize(
    "data", [b"\n*1\r\n$4\r\nPING\r\n", b"+OK\r\n", b":1\r\n", b"*1\r\n:1\r\n"]
)
def test_what_is_no_stream_of_commands_is_lost(data: bytes) -> None:
    splitter = Splitter("cache")
    splitter.feed(data)
    with pytest.raises(FeedLost, match="can't be read"):
        splitter.commands()


# ---------------------------------------------------------------- the words


def written(*args: str, database: int | None = 0, spec: Spec | None = None) -> dict[str, bool]:
    vocabulary = Vocabulary(0, lambda name: spec)
    found = vocabulary.written([arg.encode() for arg in args], database)
    return {key.decode(): gone for key, gone in found}


def test_every_command_that_writes_is_known(journal: RedisJournal) -> None:
    with client(journal) as plain:
        known = plain.execute_command("COMMAND")
    writing = {name.upper(): told for name, told in known.items() if "write" in told["flags"]}
    unread = {name for name in writing if name.encode() not in commands._READINGS}
    whole = {name.encode() for name in writing if "movablekeys" not in writing[name]["flags"]}
    assert unread <= NEVER_SENT, unread - NEVER_SENT
    assert {b"SET", b"HSET", b"DEL"} < whole
    # What is read as one key stands where the server says that keys begin.
    for name in whole & {n for n, of in commands._READINGS.items() if of is commands._one}:
        assert writing[name.decode()]["first_key_pos"] == 1, name


def test_where_keys_stand() -> None:
    assert written("set", "a", "1", "PX", "5") == {"a": False}
    assert written("DEL", "a", "b") == {"a": True, "b": True}
    assert written("MSET", "a", "1", "b", "2") == {"a": False, "b": False}
    assert written("MSETEX", "2", "a", "1", "b", "2", "EX", "5") == {"a": False, "b": False}
    assert written("RENAME", "a", "b") == {"a": True, "b": False}
    assert written("RENAME", "a", "a") == {"a": False}
    assert written("BITOP", "AND", "d", "a") == {"d": False}
    assert written("XGROUP", "CREATE", "s", "g", "$") == {"s": False}
    assert written("SORT", "a", "BY", "w*", "STORE", "d") == {"d": False}
    assert written("GEORADIUS", "a", "1", "1", "1", "m", "STOREDIST", "d") == {"d": False}
    assert written("LMOVE", "a", "b", "LEFT", "LEFT") == {"a": False, "b": False}
    assert written("ZUNIONSTORE", "d", "2", "a", "b") == {"d": False}
    assert written("PUBLISH", "a", "b") == {}
    assert written("SET", "a", "1", database=1) == {}
    assert written("SET", "a", "1", database=None) == {"a": False}


def test_what_another_database_does_to_ours() -> None:
    assert written("MOVE", "a", "0", database=1) == {"a": False}
    assert written("MOVE", "a", "2", database=1) == {}
    assert written("MOVE", "a", "1") == {"a": True}
    assert written("COPY", "a", "b", "DB", "0", "REPLACE", database=1) == {"b": False}
    assert written("COPY", "a", "b", "db", "1") == {}
    assert written("SWAPDB", "1", "2", database=1) == {}
    assert written("FLUSHDB", database=1) == {}
    for args in (("SWAPDB", "1", "0"), ("FLUSHALL",)):
        with pytest.raises(Untold):
            written(*args, database=1)


def test_of_unknown_commands_the_server_is_asked_and_silence_is_everything() -> None:
    assert written("JSON.SET", "a", "$", "1", spec=(1, 1, 1)) == {"a": False}
    assert written("X.SET", "a", "1", "b", "2", spec=(1, -2, 2)) == {"a": False, "b": False}
    assert written("X.SET", "a", database=1) == {}
    for args in (("X.SET", "a"), ("FLUSHDB",), ("SET",), ("COPY", "a", "b", "DB")):
        with pytest.raises(Untold):
            written(*args)


def test_the_server_tells_where_keys_stand(journal: RedisJournal) -> None:
    assert journal.where_keys_stand(b"MSET") == (1, -1, 2)
    assert journal.where_keys_stand(b"EVAL") is None
    assert journal.where_keys_stand(b"PING") is None
    assert journal.where_keys_stand(b"NO.SUCH") is None


# ---------------------------------------------------------------- attached


# A snapshot that is asked for begins an hour later: so none begins for want of time alone.
@pytest.mark.parametrize("own", [("--repl-diskless-sync-delay", "3600")], indirect=True)
def test_it_is_attached_without_a_snapshot_and_counts_for_nobody(own: Own) -> None:
    journal = journal_at(own.url)
    with client(journal) as plain:
        plain.hset("game:old", "a", 1)
        assert plain.info("replication")["repl_backlog_active"] == 0
        feed = journal.open(journal.prepare())
        plain.hset("game:a", "a", 1)
        assert [touch.key for touch in drained(feed, journal)[0]] == ["a"]
        assert plain.info("replication")["connected_slaves"] == 1
        assert plain.wait(1, 300) == 0, "the application's WAIT counted the feed"
        feed.close()
        stats = plain.info("stats")
        assert (stats["total_forks"], stats["sync_partial_ok"]) == (0, 1)


def test_a_reader_that_said_how_far_it_is_would_count(
    own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule taken out: the application's WAIT takes a reader without any data for a replica."""
    monkeypatch.setattr(
        Replica, "acknowledge", lambda self: self.tell("REPLCONF", "ACK", str(2**40))
    )
    journal = journal_at(own.url)
    feed = journal.open(journal.prepare())
    with client(journal) as plain:
        plain.hset("game:a", "a", 1)
        assert plain.wait(1, 60_000) == 1
    feed.close()


@pytest.mark.parametrize("own", [("--repl-diskless-sync", "no")], indirect=True)
def test_it_is_attached_where_snapshots_begin_at_once(own: Own) -> None:
    journal = journal_at(own.url)
    with client(journal) as plain:
        feed = journal.open(journal.prepare())
        plain.hset("game:a", "a", 1)
        assert [touch.key for touch in drained(feed, journal)[0]] == ["a"]
        feed.close()
        assert plain.info("stats")["total_forks"] <= 1


def test_a_reader_of_the_stream_is_no_replica_to_a_plan(journal: RedisJournal) -> None:
    found = open_store(StoreSettings("cache", f"redis://{journal.wire.servers.seeds[0]}/7"))
    place = found.collection("Game", At("cache", "game", ("/Game/*",)))
    feed = journal.open(journal.prepare())
    drained(feed, journal)
    codes = {code for _, code, _ in place.target_findings(1, 1)}  # type: ignore[attr-defined]
    feed.close()
    assert "redis-replicas" not in codes
    assert "redis-persistence" in codes


def test_a_key_that_is_written_often_waits_once(journal: RedisJournal) -> None:
    feed = journal.open(journal.prepare())
    with client(journal) as plain, plain.pipeline(transaction=False) as many:
        many.delete("game:hot")
        for number in range(500):
            many.hset("game:hot", "n", number)
            many.hset(f"game:{number % 2}", "n", number)
        many.delete("game:0")
        many.hset("game:0", "n", 0)
        many.execute()
        touches, _, sizes = drained(feed, journal)
    feed.close()
    assert {touch.key for touch in touches} == {"hot", "0", "1"}
    assert {touch.key for touch in touches if touch.deleted} == {"0"}
    assert len(touches) <= 3 * len(sizes)


def test_reading_stops_while_much_waits_and_nothing_is_passed_over(
    journal: RedisJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MOST_WAITING", 40)
    feed = journal.open(journal.prepare())
    keys = [str(number) for number in range(3000)]
    with client(journal) as plain, plain.pipeline(transaction=False) as many:
        for key in keys:
            many.hset(f"game:{key}", "pad", "x" * 200)
        many.execute()
    touches, _, _ = drained(feed, journal)
    feed.close()
    assert [touch.key for touch in touches] == keys


def test_what_waits_at_the_server_is_as_old_as_it_waits(
    journal: RedisJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "MOST_WAITING", 10)
    feed = journal.open(journal.prepare())
    assert isinstance(feed, RedisFeed)
    with client(journal) as plain, plain.pipeline(transaction=False) as many:
        for number in range(20_000):
            many.hset(f"game:{number}", "pad", "x" * 200)
        many.execute()
    end = journal.end()
    until = time.monotonic() + 60
    while not any(offset >= end for offset, _ in feed._stream._ends):
        assert time.monotonic() < until, "it was not seen how far the server is"
        time.sleep(0.02)
    seen = time.monotonic()
    for _ in range(8):
        before = time.monotonic()
        found = feed.poll(60)
        assert found is not None
        # All of it was there by then, whenever it was read.
        assert found.age >= before - seen
    feed.close()


def test_a_long_transaction_is_begun_again_where_it_began(journal: RedisJournal) -> None:
    keys = [str(number) for number in range(12_000)]
    start = journal.prepare()
    with client(journal) as plain, plain.pipeline(transaction=True) as one:
        for key in keys:
            one.hset(f"game:{key}", "n", 1)
        one.execute()
    feed = journal.open(start)
    first = feed.poll(60)
    assert first is not None
    feed.close()
    assert 0 < len(first.touches) < len(keys)
    feed = journal.open(json.loads(json.dumps(first.position)))
    rest, _, _ = drained(feed, journal)
    feed.close()
    assert {touch.key for touch in (*first.touches, *rest)} == set(keys)


def test_a_position_moves_on_while_others_write(
    journal: RedisJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "_ADVANCE_EVERY", 0.0)
    feed = journal.open(journal.prepare())
    _, before, _ = drained(feed, journal)
    with client(journal, 8) as other:
        other.set("game:a", 1)
        other.delete("game:a")
        found = None
        while found is None:
            found = feed.poll(1)
    assert isinstance(found.position, dict)
    assert isinstance(before, dict)
    assert not found.touches
    assert found.position["offset"] > before["offset"]
    feed.close()
    # And from there on it is known that it was the other database.
    feed = journal.open(found.position)
    with client(journal, 8) as other:
        other.set("game:b", 1)
    with client(journal) as plain:
        plain.hset("game:c", "n", 1)
    assert [touch.key for touch in drained(feed, journal)[0]] == ["c"]
    feed.close()


def test_keys_of_other_parts_lead_to_the_block(journal: RedisJournal) -> None:
    native = redis_native("u:{id}", "hash", seen=("u:{id}:seen", "set"), last=("last:{id}", "list"))
    found = open_store(StoreSettings("cache", "redis://127.0.0.1:1/0"))
    form = found.collection("U", At("cache", "U", layout=native))._form  # type: ignore[attr-defined]
    keys = (b"u:1", b"u:1:seen", b"last:1", b"v:1", b"last:u")
    assert [list(form.touched(key)) for key in keys] == [
        [(b"u:1", True)], [(b"u:1", False)], [(b"u:1", False)], [], [(b"u:u", False)],
    ]  # fmt: skip


# ---------------------------------------------------------------- lost


@pytest.mark.parametrize("own", [("--repl-backlog-size", "16kb")], indirect=True)
def test_what_the_backlog_no_longer_holds_is_lost(own: Own) -> None:
    journal = journal_at(own.url)
    assert [code for _, code, _ in journal.findings()] == ["redis-backlog"]
    start = journal.prepare()
    with client(journal) as plain:
        plain.hset("game:a", "pad", "x" * 200)
        feed = journal.open(start)
        assert [touch.key for touch in drained(feed, journal)[0]] == ["a"]
        feed.close()
        for _ in range(100):
            plain.set("other", "x" * 1000)
    with pytest.raises(FeedLost, match="no longer holds"):
        journal.open(start)
    feed = journal.open(journal.prepare())
    assert drained(feed, journal)[0] == []
    feed.close()


@pytest.mark.parametrize("own", [("--appendonly", "yes")], indirect=True)
def test_a_server_that_was_started_anew_is_another_one(own: Own) -> None:
    journal = journal_at(own.url)
    start = journal.prepare()
    feed = journal.open(start)
    own.stop()
    with pytest.raises(Transient):
        drained(feed, journal)
    feed.close()
    with pytest.raises(Transient):
        journal.open(start)
    own.start()
    with pytest.raises(FeedLost, match="started anew"):
        journal.open(start)


@pytest.mark.parametrize("own", [("--save", "3600 1")], indirect=True)
def test_a_stream_that_goes_on_over_a_restart_is_lost_all_the_same(own: Own) -> None:
    journal = journal_at(own.url)
    with client(journal) as plain:
        plain.hset("game:a", "n", 1)
        start = journal.prepare()
        assert isinstance(start, dict)
        end = {**start, "offset": plain.info("replication")["master_repl_offset"]}
        plain.shutdown(save=True)
    own.process.wait(60)
    own.start()
    # The server itself would go on from where its snapshot was taken; what it lost it never tells.
    replica = journal._connect()
    replica.follow(str(end["stream"]), int(end["offset"]))
    replica.close()
    with pytest.raises(FeedLost, match="started anew"):
        journal.open(end)


# ---------------------------------------------------------------- refused


def refusal(journal: RedisJournal) -> tuple[list[str], str]:
    """The codes of what stands in the way, and how preparing is refused for it."""
    found = [code for severity, code, _ in journal.findings() if severity == "error"]
    with pytest.raises(Refused) as caught:
        journal.prepare()
    return found, str(caught.value)


def test_missing_rights_and_settings_are_named(own: Own) -> None:
    with client(journal_at(own.url)) as plain:
        for name in ("psync", "replconf"):
            plain.execute_command("ACL", "SETUSER", name, "on", ">x", "~*", "+@all", f"-{name}")
            settings = StoreSettings(
                "cache", own.url, {"username": name}, secret=lambda: "x"
            )  # fmt: skip
            place = open_store(settings).collection("Game", At("cache", "game", ("/Game/*",)))
            codes, told = refusal(place.journal("run"))  # type: ignore[attr-defined]
            assert codes == ["redis-feed-right"]
            assert name in told
            assert "+psync +replconf" in told
        plain.config_set("min-replicas-to-write", 1)
        codes, told = refusal(journal_at(own.url))
        assert codes == ["redis-feed-counted"]
        assert "min-replicas-to-write 0" in told
        plain.config_set("min-replicas-to-write", 0)
        assert plain.info("replication")["repl_backlog_active"] == 0, "looking has begun something"
        plain.replicaof("127.0.0.1", "1")
        assert refusal(journal_at(own.url))[0] == ["redis-feed-replica"]


def test_a_cluster_is_refused_by_name() -> None:
    codes, told = refusal(journal_at("rediscluster://127.0.0.1:1"))
    assert codes == ["redis-feed-cluster"]
    assert "each master has a stream of its own" in told
