"""The whole life of live moves to and from Redis, and what a killed Redis loses: nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from migrator import commands
from migrator.engine.swap import SwapTerms
from migrator.gateway import Gateway, Terms
from migrator.model.phase import Phase
from tests.contract.own_redis import Own
from tests.gateway import test_live as gateway
from tests.gateway.kit import opened
from tests.gateway.writers import Writer
from tests.system import kit
from tests.system.application import Application, Held, Hooked, Rounds, Unknown, mirroring
from tests.system.dying import dies
from tests.system.kit import Shop, Urls, contents
from tests.system.test_live import at_last, roll_back
from tests.system.test_live_feeds import on_sqlite

_OLD = 60
_PATIENCE = 120.0


@pytest.fixture
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    """A server of the test's own: others would fill its backlog, and it is killed."""
    folder = tmp_path_factory.mktemp("redis")
    server = Own(folder, "--appendonly", "yes", "--appendfsync", "always")
    yield server
    server.stop()


class Keys:
    """Games as an application lays them out: a hash of JSON for each, its rounds in a list."""

    def __init__(self, own: Own, name: str) -> None:
        # One that repeats by itself would append twice.
        self.client = redis.Redis(port=own.port, retry=Retry(NoBackoff(), 0))
        self.name = name

    def put(self, key: str, number: int, rounds: Rounds) -> None:
        place = f"{self.name}:{key}"
        with self._writing(), self.client.pipeline(transaction=True) as step:
            step.delete(place, f"{place}:rounds")
            step.hset(place, mapping={"id": json.dumps(key), "n": number})
            if rounds:
                step.rpush(f"{place}:rounds", *(map(_told, range(len(rounds)), rounds)))
            step.execute()

    def append(self, key: str, place: int, spell: str) -> None:
        with self._writing():
            self.client.rpush(f"{self.name}:{key}:rounds", _told(place, spell))

    def delete(self, key: str) -> None:
        place = f"{self.name}:{key}"
        with self._writing():
            self.client.delete(place, f"{place}:rounds")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise Unknown from error

    def held(self) -> dict[str, Held]:
        found: dict[str, Held] = {}
        for place in self.client.scan_iter(match=f"{self.name}:*", _type="hash"):
            game = self.client.hgetall(place)
            rounds = self.client.lrange(place + b":rounds", 0, -1)
            spells = [json.loads(each)["spell"] for each in rounds]
            found[json.loads(game[b"id"])] = int(game[b"n"]), spells
        return found

    def close(self) -> None:
        self.client.close()


def _told(place: int, spell: str) -> str:
    return json.dumps({"pos": place, "spell": spell})


def keys_at(name: str) -> str:
    """The location of these games in the words of a script."""
    return (
        f"At('cache', '{name}', layout=redis_native('{name}:{{id}}', 'hash of json', "
        f"rounds=('{name}:{{id}}:rounds', 'list of json')))"
    )


class Life:
    """A live move, its writers and their hook."""

    def __init__(self, shop: Shop, application: Application, hooked: Hooked) -> None:
        self.shop = shop
        self.application = application
        # Redis has no fence of its own; the servers share two cores with the writers.
        self.terms = SwapTerms(hook=hooked.command, bound=60, lag=20)

    def begin(self, code: str = "redis-backlog") -> None:
        """Apply it; its plan tells of the feed by a finding of this code."""
        with self.shop.open() as project:
            plan = commands.plan(project, "0001", live=True)
            assert plan.errors == []
            codes = {finding.code for finding in plan.findings}
            assert codes >= {"N134", code}
            terms = commands.Terms(swap=self.terms, accept=sorted(codes))
            done = commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)
            assert done.verified[0].clean

    def swap(self, word: str) -> None:
        """Cut over, or roll back, and let the writers go on at the new primary."""
        by: Callable[..., commands.Applied] = getattr(commands, word)
        with self.shop.open() as project:
            at_last(lambda: by(project, "0001", swap=self.terms))
            run = commands.unfinished(project, "0001")
        assert run is not None
        assert run.primary == ("target" if word == "cutover" else "source")
        self.go_on()

    def go_on(self) -> None:
        """Until each kind of write was acknowledged a few times more."""
        words = {"put", *self.application.words}
        before = self.application.done.copy()
        until(lambda: all(self.application.done[word] >= before[word] + 3 for word in words),
              self.application)  # fmt: skip

    def assert_nothing_lost(self) -> None:
        self.application.stop()
        assert not self.application.problems, self.application.problems[0]
        with self.shop.open() as project, mirroring(self.shop):
            (found,) = commands.verify_run(project, "0001")
        assert found.clean, found.told
        self.application.assert_held("source")
        self.application.assert_held("target")


def until(true: Callable[[], object], application: Application | None = None) -> None:
    end = time.monotonic() + _PATIENCE
    while not true():
        if application is not None and application.problems:
            raise application.problems[0]
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.01)


@contextmanager
def living(shop: Shop, application: Application) -> Iterator[Life]:
    with application, Hooked(application, shop.root) as hooked:
        yield Life(shop, application, hooked)
        application.stop()


@pytest.fixture
def to_redis(tmp_path: Path, own: Own) -> Iterator[Life]:
    """From tables of SQLite to keys of Redis."""
    name = kit.fresh("live")
    tables = on_sqlite(tmp_path / "sql.db", name)
    tables.make()
    for number in range(_OLD):
        tables.put(f"old-{1000 + number}", number, ["a", "b"][: number % 3])
    shop = Shop(tmp_path, {"sql": "sqlite:///sql.db", "cache": own.url})
    shop.script(
        f"move = Move('Game', target={keys_at(name)}, source=At('sql', tables('{name}', "
        f"rounds=tables('{name}_round', order_by='pos'))))"
    )
    sides = {
        "source": lambda: on_sqlite(tmp_path / "sql.db", name),
        "target": lambda: Keys(own, name),
    }
    with living(shop, Application(sides, writers=2)) as life:
        life.begin()
        yield life
    tables.close()


def test_nothing_is_lost_from_sqlite_to_redis_and_back(to_redis: Life) -> None:
    with mirroring(to_redis.shop):
        to_redis.go_on()
        for word in ("cutover", "rollback", "cutover"):
            to_redis.swap(word)
            with to_redis.shop.open() as project:
                (stands,) = commands.status(project, "0001")
            # SQLite stops writes by itself.
            assert ("--hook COMMAND" in stands.next) == (word == "cutover"), stands.next
    to_redis.assert_nothing_lost()


def test_nothing_is_lost_where_the_owner_dies_while_it_follows_redis(to_redis: Life) -> None:
    to_redis.swap("cutover")
    for point in ("mirror.touched", "mirror.applied", "swap.drained"):
        to_redis.go_on()
        dies(partial(roll_back, to_redis.shop.config, to_redis.terms), point)
    to_redis.swap("rollback")
    to_redis.assert_nothing_lost()


def test_nothing_is_lost_where_the_server_is_killed(tmp_path: Path, own: Own) -> None:
    name = kit.fresh("live")
    first = Keys(own, name)
    for number in range(_OLD):
        first.put(f"old-{1000 + number}", number, ["a", "b"])
    first.close()
    shop = Shop(tmp_path, {"cache": own.url, "new": "embedded:///new.db"})
    shop.script(f"move = Move('Game', source={keys_at(name)}, target=At('new', '{name}'))")
    # A write that broke off is made again, so it has to be one that may be.
    sides = {"source": lambda: Keys(own, name)}
    application = Application(sides, words=("put", "delete"), writers=2)
    with living(shop, application) as life:
        life.begin()
        with mirroring(shop), shop.open() as project:
            (route,) = project.routes("0001")
            witness = Keys(own, name)
            witness.put("old-2000", 1, [])
            until(lambda: route.target.read(["old-2000"]) != [None])  # it is at work
            witness.close()
            life.go_on()
            own.stop()
            until(lambda: application.refused, application)
            own.start()
            life.go_on()
            until(lambda: {"feed lost", "scanned anew"} <= told(project), application)
        application.stop()
        with mirroring(shop), shop.open() as project:
            (found,) = commands.verify_run(project, "0001")
            assert "foreign write" not in told(project)
        assert found.clean, found.told
        application.assert_held("source")
        with shop.open() as project:
            (route,) = project.routes("0001")
            assert contents(route.source) == contents(route.target)


@pytest.fixture
def forgetful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    """A server that comes back with what it held when it was last told to save it."""
    server = Own(tmp_path_factory.mktemp("redis"), "--dbfilename", "kept.rdb")
    yield server
    server.stop()


def test_what_the_mirrors_server_has_lost_is_no_foreign_write(
    tmp_path: Path, forgetful: Own
) -> None:
    name = kit.fresh("live")
    there = Keys(forgetful, name)
    tables = on_sqlite(tmp_path / "sql.db", name)
    tables.make()
    for key in ("lost", "older", "strange", "still"):
        tables.put(key, 1, ["a"])
    shop = Shop(tmp_path, {"sql": "sqlite:///sql.db", "cache": forgetful.url})
    shop.script(
        f"move = Move('Game', target={keys_at(name)}, source=At('sql', tables('{name}', "
        f"rounds=tables('{name}_round', order_by='pos'))))"
    )
    with shop.open() as project:
        plan = commands.plan(project, "0001", live=True)
        terms = commands.Terms(accept=sorted({finding.code for finding in plan.findings}))
        commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)
        with mirroring(shop):

            def mirrored(key: str, number: int) -> None:
                tables.put(key, number, ["a", "b"])
                until(lambda: there.held().get(key) == (number, ["a", "b"]))

            mirrored("older", 2)
            mirrored("strange", 2)
            there.client.save()
            mirrored("new", 2)
            mirrored("older", 3)
            mirrored("strange", 3)
            forgetful.stop()
            forgetful.start()
            there.put("strange", 99, [])
            tables.put("new", 4, [])
            until(lambda: "scanned anew" in told(project))
            (found,) = commands.verify_run(project, "0001")
        assert found.clean, found.told
        assert there.held() == tables.held()
        assert {
            event["detail"]["key"]
            for event in commands.events(project, "0001")  # type: ignore[index]
            if event["event"] == "foreign write"
        } == {"Game:strange"}
    there.close()
    tables.close()


def told(project: commands.Project) -> set[str]:
    return {str(event["event"]) for event in commands.events(project, "0001")}


# ---------------------------------------------------------------- under gateways

_SCRIPT = '''"""Games move."""

from migrator import At, Move

revision, down_revision = "0001", None

move = Move("Game", source=At("old", {name!r}), target=At("new", {name!r}, layout="partition"))
'''


@pytest.fixture
def config(tmp_path: Path, own: Own, urls: Urls) -> Path:
    """A move from hashes of Redis to partitions of Cassandra, where no feed shows writes."""
    (tmp_path / "migrations").mkdir()
    script = tmp_path / "migrations" / "0001_move.py"
    script.write_text(_SCRIPT.format(name=kit.fresh("gateway")))
    settings = tmp_path / "migrator.toml"
    settings.write_text(
        f'[env.test.stores.old]\nurl = "{own.url}"\n'
        f'[env.test.stores.new]\nurl = "{urls("cassandra", "")}"\n'
    )
    with commands.Project(settings, "test") as project:
        (route,) = project.routes("0001")
        route.source.create()
        assert not project.control.runs()  # made before writers open it, both at once
    return settings


def test_nothing_is_lost_from_redis_to_cassandra_and_back(config: Path) -> None:
    writers = [Writer(config, name, _patient, whole=True).start() for name in ("a", "b")]
    try:
        more(writers)
        with commands.Project(config, "test") as project:
            plan = commands.plan(project, "0001", live=True)
            assert plan.errors == []
            terms = commands.Terms(accept=[finding.code for finding in plan.findings])
            commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)
            for by in (commands.cutover, commands.rollback, commands.cutover):
                more(writers)
                at_last(lambda by=by: by(project, "0001", swap=SWAP))  # type: ignore[misc]
            more(writers)
            for writer in writers:
                writer.stop()
            (route,) = project.routes("0001")
            with gateway.mirroring(config):
                until(lambda: contents(route.source) == contents(route.target))
            held = dict(contents(route.target).values())
            assert {key: held.get(key) for w in writers for key in w.acknowledged()} == {
                key: value for w in writers for key, value in w.acknowledged().items()
            }
            assert held.keys() <= {f"{w.name}-{n}" for w in writers for n in range(7)}
    finally:
        for writer in writers:
            if not writer.waited:
                writer.kill()


# Writers and servers share two cores with other tests: leases and pauses may be long.
_TERMS = Terms(lease=10.0, look=0.01, bound=_PATIENCE, request_life=1.0)
SWAP = SwapTerms(gateways=True, bound=60, lag=20)


def _patient(config: Path) -> Gateway:
    return opened(config, _TERMS)


def more(writers: list[Writer]) -> None:
    before = [writer.lines() for writer in writers]
    until(lambda: all(w.lines() >= b + 6 for w, b in zip(writers, before, strict=True)))
