"""kill -9 under a move: of a server in the middle of it, and of the applying process."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count, cycle
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from migrator import commands
from migrator.engine import points
from migrator.errors import Transient
from migrator.model.phase import Phase
from migrator.model.value import Int64, Record, Ref
from migrator.retry import Retry
from tests.conftest import server_url
from tests.contract.own_redis import free_port
from tests.ending import waited
from tests.system import kit
from tests.system.kit import Place, Shop, Urls

GAMES = 2200
POSTGRESQL = Place("entries-postgresql", "postgresql", "entries")
MONGODB = Place("mongo-document", "mongodb", "document")
SCRIPT = Path(__file__).parents[2] / "scripts" / "services"


def game(number: int) -> Record:
    return {
        "id": str(number),
        "by": Ref("Player", "mary"),
        "score": Int64(number),
        "rounds": [{"moves": [f"q{i}", number], "spell": None} for i in range(number % 3)],
    }


# ---------------------------------------------------------------- servers of our own


@dataclass(frozen=True)
class Own:
    """Servers that belong to these tests alone, so that they may be killed."""

    environment: dict[str, str]
    url: dict[str, str]

    def do(self, command: str, *names: str) -> str:
        done = subprocess.run(
            [sys.executable, str(SCRIPT), command, *names],
            env=self.environment, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def freeze(self, name: str) -> None:
        """Stop every process of a server: what is sent to it now gets no answer."""
        (seen,) = json.loads(self.do("status", name, "--format", "json"))
        pids = [seen["pid"]]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
            for task in Path(f"/proc/{pid}/task").iterdir():
                pids += map(int, (task / "children").read_text().split())

    def die_and_rise(self, name: str) -> None:
        """Kill a frozen server when something waits for it, and start it again."""
        time.sleep(1.0)
        self.do("kill", name)
        self.do("up", name)


_PLACES = {
    "postgresql": "postgresql://migrator:migrator@127.0.0.1:{}/postgres",
    "mariadb": "mariadb://migrator:migrator@127.0.0.1:{}/kill",
    "mongodb": "mongodb://127.0.0.1:{}/kill?directConnection=true&serverSelectionTimeoutMS=5000",
    "cassandra": "cassandra://127.0.0.1:{}/kill",
}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Own]:
    with owned(tmp_path_factory.mktemp("services"), "postgresql", "mongodb") as servers:
        yield servers


@contextmanager
def owned(folder: Path, *names: str) -> Iterator[Own]:
    """Servers of these tests' own, which go at the end with all that they hold."""
    for server in names:
        server_url(server)  # where the shared one is absent, ours could not be started either
    ports = {server: str(free_port()) for server in names}
    # What the shared servers fetched from Maven does for these, too.
    shared = os.environ.get("MIGRATOR_SERVICES_DIR") or str(SCRIPT.parents[1] / ".services")
    servers = Own(
        {
            "MIGRATOR_SERVERS_CACHE": f"{shared}/cassandra",
            **os.environ,
            "MIGRATOR_SERVICES_DIR": str(folder),
            **{f"MIGRATOR_{name.upper()}_PORT": port for name, port in ports.items()},
        },
        {name: _PLACES[name].format(port) for name, port in ports.items()},
    )
    servers.do("up", *ports)
    try:
        yield servers
    finally:
        servers.do("kill", *ports)
        _remove(servers, ports)


def _remove(servers: Own, ports: Iterable[str]) -> None:
    seen = subprocess.run(
        [sys.executable, str(SCRIPT), "status", *ports, "--format", "json"],
        env=servers.environment, capture_output=True, text=True,
    )  # fmt: skip
    for each in json.loads(seen.stdout):
        shutil.rmtree(each["home"], ignore_errors=True)
        with suppress(OSError):
            Path(each["home"]).parent.rmdir()


def prepared(shop: Shop, source: Place, target: Place) -> tuple[str, kit.Contents]:
    """A revision that takes games from one place to another, the source filled."""
    name = kit.fresh("kill")
    arrives = target.script(f"{name}_t", kit.ROUNDS)
    shop.script(f"move = {kit.move('Game', source.script(name), arrives)}")
    games = [(str(n), game(n)) for n in range(GAMES)]
    with shop.open() as project:
        kit.fill(project.stores.get(source.store).collection("Game", source.at(name)), games)
    return name, kit.by_key(games)


def check_arrived(shop: Shop, target: Place, name: str, expected: kit.Contents) -> None:
    with shop.open() as project:
        assert project.control.run("0001").phase is Phase.CUT_OVER
        kit.assert_as_planned(project, "0001")
        at = target.at(f"{name}_t", kit.ROUNDS)
        collection = project.stores.get(target.store).collection("Game", at)
        kit.assert_equal(kit.contents(collection), expected)


class At:
    """Does something once, when a run comes to a named point for the n-th time."""

    def __init__(self, point: str, nth: int, act: Callable[[], object]) -> None:
        self.left = nth
        self.point, self.act = point, act
        self.lock = threading.Lock()

    def __call__(self, point: str) -> None:
        if point == self.point:
            with self.lock:
                self.left -= 1
                if self.left == 0:
                    self.act()


BOTH_WAYS = ((POSTGRESQL, MONGODB), (MONGODB, POSTGRESQL))


@pytest.mark.parametrize("killed", ["postgresql", "mongodb"])
@pytest.mark.parametrize(("source", "target"), BOTH_WAYS, ids=str)
def test_a_run_outlives_the_death_of_a_server(
    source: Place, target: Place, killed: str, tmp_path: Path, own: Own,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    shop = Shop(tmp_path, {place.store: own.url[place.server or ""] for place in (source, target)})
    name, expected = prepared(shop, source, target)
    with ThreadPoolExecutor(1) as elsewhere, shop.open() as project:
        deaths: list[Future[None]] = []

        def die() -> None:
            # It stands still first, so that the next request is in its hands when it dies.
            own.freeze(killed)
            deaths.append(elsewhere.submit(own.die_and_rise, killed))

        plan = commands.plan(project, "0001")
        monkeypatch.setattr(points, "hook", At("backfill.written", 2, die))
        with capture_logs() as logs:
            commands.apply(project, plan)
        monkeypatch.undo()
        (death,) = deaths
        death.result()
    assert [line for line in logs if line["event"] == "retry"], "nothing was repeated"
    check_arrived(shop, target, name, expected)


@pytest.mark.parametrize(("source", "target"), BOTH_WAYS, ids=str)
def test_a_second_apply_goes_on_after_the_death_of_a_server(
    source: Place, target: Place, tmp_path: Path, own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(tmp_path, {place.store: own.url[place.server or ""] for place in (source, target)})
    name, expected = prepared(shop, source, target)
    killed = source.server or ""
    hook = At("backfill.checkpointed", 1, lambda: own.do("kill", killed))
    with shop.open() as project:
        plan = commands.plan(project, "0001")
        with monkeypatch.context() as patch:
            patch.setattr(Retry.__init__, "__defaults__", (0.5, *Retry.__init__.__defaults__[1:]))
            patch.setattr(points, "hook", hook)
            with pytest.raises(Transient):
                commands.apply(project, plan)
    own.do("up", killed)
    with shop.open() as project:
        assert project.control.run("0001").phase in (Phase.DUAL_WRITE, Phase.BACKFILLED)
        commands.apply(project, plan)
    check_arrived(shop, target, name, expected)


class AtEach:
    """Does something in turn, the first time that a run comes to each of its named points."""

    def __init__(self, left: Collection[str], acts: Iterable[Callable[[], object]]) -> None:
        self.left, self.acts = set(left), cycle(acts)
        self.lock = threading.Lock()

    def __call__(self, point: str) -> None:
        with self.lock:
            if point in self.left:
                self.left.remove(point)
                next(self.acts)()


# All that an apply comes to, from the first to the last; some of them where blocks are there.
APPLYING = [p for p in points.POINTS if not p.startswith(("rollback", "abort", "finish"))]


def test_a_server_dies_at_every_named_point(
    tmp_path: Path, own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Now the source's and now the target's, in one run that goes on each time."""
    source, target = POSTGRESQL, MONGODB
    shop = Shop(tmp_path, {place.store: own.url[place.server or ""] for place in (source, target)})
    name, expected = prepared(shop, source, target)

    def restart(place: Place) -> Callable[[], None]:
        def act() -> None:
            own.do("kill", place.server or "")
            own.do("up", place.server or "")

        return act

    with shop.open() as project:
        at = target.at(f"{name}_t", kit.ROUNDS)
        there = [(str(n), game(n + 1)) for n in range(0, GAMES, 9)] + [("gone", game(1))]
        kit.fill(project.stores.get(target.store).collection("Game", at), there)
        plan = commands.plan(project, "0001")
        hook = AtEach(APPLYING, (restart(source), restart(target)))
        monkeypatch.setattr(points, "hook", hook)
        accept = [finding.code for finding in plan.to_accept]
        commands.apply(project, plan, terms=commands.Terms(accept=accept))
        monkeypatch.undo()
    assert not hook.left, f"{hook.left} were not reached"
    check_arrived(shop, target, name, expected)


class Deaths:
    """Kills one of two servers now and then, at random, and starts it again, as long as it is
    asked to; some work gets done in between."""

    def __init__(self, own: Own, seed: int) -> None:
        self.own, self.chance = own, random.Random(seed)
        self.count = 0
        self.stop = threading.Event()

    def __enter__(self) -> Deaths:
        self.stop.clear()
        self.thread = ThreadPoolExecutor(1)
        self.work = self.thread.submit(self._go_on)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self.work.result()
        self.thread.shutdown()

    def _go_on(self) -> None:
        while not self.stop.wait(self.chance.uniform(0.0, 1.5)):
            name = self.chance.choice(["postgresql", "mongodb"])
            self.own.do("kill", name)
            self.count += 1
            self.own.do("up", name)


def test_servers_die_at_random_times(tmp_path: Path, own: Own) -> None:
    """As many runs as it takes until servers have died ten times in them: the more the faster a
    run is."""
    deaths = Deaths(own, seed=12)
    for turn in count():
        source, target = BOTH_WAYS[turn % 2]
        urls = {place.store: own.url[place.server or ""] for place in (source, target)}
        shop = Shop(tmp_path / str(turn), urls)
        name, expected = prepared(shop, source, target)
        with shop.open() as project:
            plan = commands.plan(project, "0001")
            with deaths:
                commands.apply(project, plan)
        check_arrived(shop, target, name, expected)
        if deaths.count >= 10:
            return


# ---------------------------------------------------------------- the applying process


@pytest.mark.parametrize(
    ("point", "nth"),
    [
        ("prepare.created", 1),
        ("backfill.read", 3),
        ("backfill.written", 1),
        ("backfill.written", 3),
        ("backfill.checkpointed", 2),
        ("verify.checkpointed", 3),
        ("cut_over.settled", 1),
    ],
)
def test_apply_between_servers_goes_on_after_kill_9(
    tmp_path: Path, urls: Urls, point: str, nth: int
) -> None:
    ends = POSTGRESQL, MONGODB
    shop = Shop(tmp_path, {place.store: urls(place.server, "") for place in ends})
    name, expected = prepared(shop, *ends)
    with shop.open() as project:
        plan = commands.plan(project, "0001")
    pid = os.fork()
    if pid == 0:
        try:
            points.hook = At(point, nth, lambda: os.kill(os.getpid(), signal.SIGKILL))
            with shop.open() as project:
                commands.apply(project, plan)
        finally:
            os._exit(70)
    assert os.WTERMSIG(waited(pid)) == signal.SIGKILL, f"{point} was not reached"
    with shop.open() as project:
        commands.apply(project, plan)
    check_arrived(shop, MONGODB, name, expected)
