"""An application that goes on writing while its data moves, and remembers what was acknowledged.

Each of its writers has keys of its own, so the last write of a key that was acknowledged is what
the key must hold; of one whose answer never came either outcome will do.
"""

from __future__ import annotations

import faulthandler
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import psycopg

from migrator import __main__, commands
from migrator.commands import Project, SwapTerms
from migrator.state import LiveState
from tests.ending import PATIENCE, joined
from tests.system import dying, servers
from tests.system.kit import ENV, Shop

Rounds = list[str]
# What a key holds: its number and its rounds; None where it was deleted.
Held = tuple[int, Rounds] | None


class Side(Protocol):
    """One side of the move by its plain driver, over a session of its own."""

    def put(self, key: str, number: int, rounds: Rounds) -> None:
        """Make the game of a key, or make it this one."""

    def append(self, key: str, place: int, spell: str) -> None:
        """One more round, at the end."""

    def delete(self, key: str) -> None:
        """Remove the game with its rounds."""

    def held(self) -> dict[str, Held]:
        """All games."""

    def close(self) -> None:
        """End the session."""


class Numbered(Side, Protocol):
    """A side for an application that has the word ``number``."""

    def number(self, key: str, number: int) -> None:
        """Change the number alone."""


class Refused(Exception):
    """A write that certainly was not carried out."""


class Unknown(Refused):
    """A write that may have been carried out, and that is made again."""


@contextmanager
def writing(session: psycopg.Connection[Any]) -> Iterator[Callable[..., object]]:
    """One transaction on PostgreSQL; what a fence denies is Refused."""
    try:
        with session.transaction():
            yield session.execute
    except psycopg.errors.ReadOnlySqlTransaction as error:
        raise Refused from error


@dataclass
class Tables:
    """Games in tables of PostgreSQL: ``NAME`` and its rounds in ``NAME_round``."""

    url: str
    name: str

    def __post_init__(self) -> None:
        self.session = servers.connect_postgresql(self.url)

    def make(self) -> None:
        name = self.name
        self.session.execute(f"CREATE TABLE {name} (id text PRIMARY KEY, n int NOT NULL)")
        self.session.execute(
            f"CREATE TABLE {name}_round (game text NOT NULL REFERENCES {name}, pos int, "
            "spell text NOT NULL, PRIMARY KEY (game, pos))"
        )

    def put(self, key: str, number: int, rounds: Rounds) -> None:
        with writing(self.session) as do:
            do(f"INSERT INTO {self.name} (id, n) VALUES (%s, %s) "
               "ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n", (key, number))  # fmt: skip
            do(f"DELETE FROM {self.name}_round WHERE game = %s", (key,))
            for place, spell in enumerate(rounds):
                do(f"INSERT INTO {self.name}_round VALUES (%s, %s, %s)", (key, place, spell))

    def append(self, key: str, place: int, spell: str) -> None:
        with writing(self.session) as do:
            do(f"INSERT INTO {self.name}_round VALUES (%s, %s, %s)", (key, place, spell))

    def delete(self, key: str) -> None:
        with writing(self.session) as do:
            do(f"DELETE FROM {self.name}_round WHERE game = %s", (key,))
            do(f"DELETE FROM {self.name} WHERE id = %s", (key,))

    def held(self) -> dict[str, Held]:
        with self.session.transaction():
            self.session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            games = self.session.execute(f"SELECT id, n FROM {self.name}").fetchall()
            rounds = self.session.execute(
                f"SELECT game, spell FROM {self.name}_round ORDER BY game, pos"
            ).fetchall()
        found: dict[str, tuple[int, Rounds]] = {key: (n, []) for key, n in games}
        for key, spell in rounds:
            found[key][1].append(spell)
        return dict(found)

    def close(self) -> None:
        self.session.close()


@dataclass
class Documents:
    """Games as documents of MongoDB."""

    url: str
    name: str

    def __post_init__(self) -> None:
        self.client = servers.connect_mongodb(self.url)
        self.games = self.client.get_default_database()[self.name]

    def put(self, key: str, number: int, rounds: Rounds) -> None:
        told = [{"pos": place, "spell": spell} for place, spell in enumerate(rounds)]
        game = {"id": key, "n": number, "rounds": told}
        self.games.replace_one({"_id": key}, game, upsert=True)

    def append(self, key: str, place: int, spell: str) -> None:
        push = {"$push": {"rounds": {"pos": place, "spell": spell}}}
        self.games.update_one({"_id": key}, push)

    def delete(self, key: str) -> None:
        self.games.delete_one({"_id": key})

    def held(self) -> dict[str, Held]:
        return {
            game["_id"]: (game["n"], [each["spell"] for each in game.get("rounds", [])])
            for game in self.games.find()
        }

    def close(self) -> None:
        self.client.close()


@dataclass
class Application:
    """Writers that follow the primary, as a hook of Migrator's tells it.

    ``words`` are what they do to a game that is there, ``primary`` is ``source`` or ``target``,
    ``pace`` a writer's pause between two writes, in seconds. ``hold`` stops all writes, and
    returns once none is under way.
    """

    sides: dict[str, Callable[[], Side]]
    words: tuple[str, ...] = ("put", "append", "append", "delete")
    writers: int = 4
    keys: int = 60
    pace: float = 0.03
    primary: str = "source"
    done: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    longest: float = 0.0
    expected: dict[str, set[Any]] = field(default_factory=dict)
    problems: list[BaseException] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._locks = [threading.Lock() for _ in range(self.writers)]
        self._acknowledged = [0] * self.writers
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Application:
        self._threads = [
            threading.Thread(target=self._run, args=[number]) for number in range(self.writers)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        joined(*self._threads)

    def go_on_for(self, seconds: float) -> None:
        """Let the writers work on for a while."""
        before = self.done.total()
        time.sleep(seconds)
        self._until(lambda: self.done.total() > before)
        if self.problems:
            raise self.problems[0]

    def go_on_until_all(self) -> None:
        """Let the writers work until each had a write acknowledged: none waits since before."""
        before = list(self._acknowledged)
        self._until(
            lambda: all(now > old for now, old in zip(self._acknowledged, before, strict=True))
        )

    def go_on_until_each(self, words: Collection[str], times: int = 3, more: bool = True) -> None:
        """Let the writers work until each of these was acknowledged so many times, ``more`` than
        before."""
        before = self.done.copy() if more else Counter[str]()
        self._until(lambda: all(self.done[word] >= before[word] + times for word in words))

    def _until(self, true: Callable[[], bool]) -> None:
        """Wait for what the writers are to come to; raises what one of them has met before."""
        end = time.monotonic() + 120  # a machine that is busy elsewhere may have none to spare
        while not true():
            if self.problems:
                raise self.problems[0]
            assert time.monotonic() < end, (self.done, self._acknowledged)
            time.sleep(0.01)

    def hold(self) -> None:
        for lock in self._locks:
            assert lock.acquire(timeout=PATIENCE), "a write does not come back"

    def release(self, primary: str) -> None:
        self.primary = primary
        for lock in self._locks:
            lock.release()

    # ------------------------------------------------------------------ a writer

    def _run(self, number: int) -> None:
        try:
            self._write(number)
        except BaseException as error:
            self.problems.append(error)
            raise

    def _write(self, number: int) -> None:
        chosen = random.Random(number)
        sides = {name: make() for name, make in self.sides.items()}
        holds: dict[str, Held] = {}
        turn, last = 0, time.monotonic()
        while not self._stop.is_set():
            turn += 1
            key = f"{number}-{chosen.randrange(self.keys)}"
            held = holds.get(key)
            word = chosen.choice(self.words) if held else "put"
            new: Held = None
            if word == "put":
                new = turn, [f"{turn}.{n}" for n in range(chosen.randrange(4))]
            elif word == "append" and held:
                new = held[0], [*held[1], f"{turn}"]
            elif word == "number" and held:
                new = turn, held[1]
            self.expected[key] = {_frozen(held), _frozen(new)}
            certain = True
            while not self._stop.is_set():
                # Where a test fails under the fence, nobody lets the writers go on.
                if not self._locks[number].acquire(timeout=0.1):
                    continue
                try:
                    _do(sides[self.primary], word, key, new)
                except Refused as error:
                    self.refused += 1
                    certain &= not isinstance(error, Unknown)
                else:
                    break
                finally:
                    self._locks[number].release()
                time.sleep(0.001)
            else:
                if certain:
                    self.expected[key] = {_frozen(held)}
                break
            holds[key] = new
            self.expected[key] = {_frozen(new)}
            self.done[word] += 1
            self.longest = max(self.longest, time.monotonic() - last)
            last = time.monotonic()
            self._acknowledged[number] += 1
            time.sleep(self.pace)
        for side in sides.values():
            with suppress(Exception):
                side.close()

    # ------------------------------------------------------------------ the proof

    def assert_held(self, side: str) -> None:
        """Every acknowledged write is on a side, and nothing else of these keys."""
        reader = self.sides[side]()
        held = {key: _frozen(found) for key, found in reader.held().items()}
        reader.close()
        wrong = {
            key: (sorted(map(str, may)), held.get(key))
            for key, may in self.expected.items()
            if held.get(key) not in may
        }
        assert not wrong, f"{len(wrong)} of {len(self.expected)}: {dict(list(wrong.items())[:3])}"
        strange = [
            key for key in held
            if key not in self.expected and int(key.partition("-")[2]) < self.keys
        ]  # fmt: skip
        assert not strange, strange


def _do(side: Side, word: str, key: str, new: Held) -> None:
    if word == "put" and new:
        side.put(key, *new)
    elif word == "append" and new:
        side.append(key, len(new[1]) - 1, new[1][-1])
    elif word == "number" and new:
        cast("Numbered", side).number(key, new[0])
    else:
        side.delete(key)


def _frozen(held: Held) -> object:
    return None if held is None else (held[0], tuple(held[1]))


# ---------------------------------------------------------------------- the mirror


@contextmanager
def mirroring(shop: Shop) -> Iterator[None]:
    """``migrator mirror`` at work on a run, in a process of its own."""
    log = shop.root / "mirror.log"
    log.touch()
    with shop.open() as project:
        live = LiveState(project.control, project.control.run("0001").id)
        before, end = live.told(), time.monotonic() + 120
        process = dying.FORKED.Process(target=_mirror, args=(shop.config, log))
        process.start()
        try:
            while live.told() == before:  # or another is at work, and this one stands by
                assert process.exitcode is None, log.read_text()[-10_000:]
                assert time.monotonic() < end, "the mirror has said nothing"
                time.sleep(0.01)
            yield
        finally:
            try:
                process.terminate()
                dying.joined(process, PATIENCE)
            finally:
                sys.stderr.write(log.read_text()[-20_000:])


def _mirror(config: Path, log: Path) -> None:
    """The command, with what it tells in a file."""
    with log.open("ab") as told:
        os.dup2(told.fileno(), sys.stderr.fileno())
    faulthandler.enable()
    options = ["--env", ENV, "--config", str(config)]
    sys.argv = ["migrator", "mirror", "0001", *options]
    sys.exit(__main__.main())


def there_and_back(
    shop: Shop, project: Project, application: Application, words: Collection[str], swap: SwapTerms
) -> None:
    """Over, back, and over again while the application writes each of these; then both sides hold
    what was acknowledged, and no more."""
    with mirroring(shop):
        application.go_on_until_each(words)
        assert all(looked.clean for looked in commands.shadow(project, "0001", sample=20))
        commands.cutover(project, "0001", swap=swap)
        application.go_on_until_each(words)
        assert all(looked.clean for looked in commands.shadow(project, "0001", sample=20))
        done = commands.rollback(project, "0001", swap=swap)
        assert (done.phase, done.primary) == ("shadow_read", "source")
        application.go_on_until_each(words)
        commands.cutover(project, "0001", swap=swap)
        application.go_on_until_each(words)
        application.stop()
        for found in commands.verify_run(project, "0001"):
            assert found.clean, found.told
    for side in ("source", "target"):
        application.assert_held(side)
    assert "foreign write" not in [event["event"] for event in commands.events(project, "0001")]


# ---------------------------------------------------------------------- the hook


HOOK = """\
echo "$MIGRATOR_EVENT $MIGRATOR_PRIMARY" > "$1/part" && mv "$1/part" "$1/asked"
while [ -e "$1/asked" ] && kill -0 "$2"; do sleep 0.001; done
"""


class Hooked:
    """Answers to Migrator's hook: stops the writers, and lets them go on at the primary."""

    def __init__(self, application: Application, here: Path) -> None:
        self.application = application
        self.here = here
        (here / "hook.sh").write_text(HOOK)
        self.events: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    @property
    def command(self) -> str:
        """What ``--hook`` is to be."""
        return f"sh {self.here}/hook.sh {self.here} {os.getpid()}"

    def __enter__(self) -> Hooked:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        joined(self._thread)
        (self.here / "asked").unlink(missing_ok=True)

    def _run(self) -> None:
        try:
            self._answer()
        except BaseException as error:
            self.application.problems.append(error)
            raise

    def _answer(self) -> None:
        asked = self.here / "asked"
        held = False
        while not self._stop.wait(0.001):
            if not asked.exists():
                continue
            event, primary = asked.read_text().split()
            self.events.append(event)
            if event == "fence" and not held:
                self.application.hold()
            elif event != "fence" and held:
                self.application.release(primary)
            held = event == "fence"
            asked.unlink()
