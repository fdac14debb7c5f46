"""Reads that the mirror answers: which, when not, and what they never show."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest

from migrator import commands
from migrator.commands.records import GatewayAnswers
from migrator.errors import Refused, Terminal, Transient, Waiting
from migrator.gateway import Conflict, Gateway
from migrator.gateway.mirrored import MirrorReading, _spelled
from migrator.model.block import Address, Aggregate, Block, cut
from migrator.model.phase import Phase
from migrator.model.value import Int64
from migrator.state import Lease, LiveState, Quarantined, ShadowReads, quarantine_key
from tests.contract import servers
from tests.gateway.kit import QUICK, Owner, make_project, until
from tests.gateway.test_live import begin, mirroring, postgresql_to_mongodb, swapped
from tests.gateway.test_live import project as project_of
from tests.system.kit import fresh

__all__ = ["postgresql_to_mongodb"]

KEYS = [str(n) for n in range(20)]
# The mirror may take as long to answer, and a write to be sent, as a busy machine does.
PATIENT = replace(QUICK, patience=60.0, bound=60.0)


class Clock:
    """The gateway's, which stands still."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Moved:
    """A move that was compared, whose mirror is the test: it says what it holds, and since when."""

    def __init__(self, project: commands.Project, owner: Owner) -> None:
        self.project, self.owner, self.run = project, owner, owner.run.id
        (self.route,) = project.routes("0001")
        self._live = LiveState(project.control, self.run)
        self.by = "it"

    def put(self, side: str, key: str, n: int) -> None:
        new = Aggregate(key, {"id": key, "n": n})
        if side == "source":
            self.route.source.write([cut(new, self.route.translation.source)])
        else:
            self.route.target.write([cut(new, self.route.representation)])

    def say(
        self, age: float | None = 0.0, said: float | None = None, epoch: int | None = None
    ) -> None:
        """A word of the mirror: for how long it has held what was written before."""
        epoch = self.project.control.run(self.run).epoch if epoch is None else epoch
        said = time.monotonic() if said is None else said
        held = None if age is None else {"by": self.by, "epoch": epoch, "age": age, "said": said}
        self._live.tell(lag=0.0, scanning=False, held=held)

    def verified(self, differ: int = 0) -> None:
        record = self.project.control.record
        record(self.run, "verified", cls="Game", differ=differ, missing=0, extra=0)

    @property
    def live(self) -> Any:
        (status,) = commands.status(self.project)
        return status.live


class Games:
    """A gateway, and what its reads come to. Its clock goes on where the test says so, and it
    looks at what the mirror says where the test does."""

    def __init__(self, gateway: Gateway, moved: Moved) -> None:
        self.gateway, self.moved = gateway, moved
        self.reading: MirrorReading = gateway._here.mirrored
        self.clock = self.reading._clock = Clock()  # type: ignore[assignment]
        self.suspects: list[object] = []
        self.reading._suspect = self.suspects.append

    def share(self, part: float, stale: float = 100.0) -> None:
        """Have the mirror answer so many reads, and wait until the gateway obeys."""
        self.moved.say()
        commands.reads(self.moved.project, "0001", part, stale)
        until(lambda: self.reading.share == part)
        if part:
            self.know()

    def know(self, age: float = 0.0) -> None:
        """The mirror says three times what it holds: from the third one all is known that was
        written until now, or by so much later than ``age`` is greater."""
        for _ in range(3):
            self.clock.now += 1
            self.moved.say(age)
            self.reading._look()

    def n(self, key: str) -> int | None:
        """What is given, in both ways: below zero where the mirror gave it."""
        found, entries = self.gateway.get(key), self.gateway.get_entries(key, ["n"])
        assert entries == (None if found is None else {"n": found.value["n"]})
        return None if found is None else cast("int", found.value["n"])

    def get(self, key: str, outcome: str) -> int | None:
        """What is given by a read that counts as this outcome."""
        before = dict(self.reading._tally.counts)
        found = self.gateway.get(key)
        after = self.reading._tally.counts
        assert after == {**before, outcome: before.get(outcome, 0) + 1}
        return None if found is None else cast("int", found.value["n"])


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, commands.Project]]:
    """A project that tests have one run after another in: each has a side to fill anew."""
    config = make_project(tmp_path_factory.mktemp("reads"))
    with commands.Project(config, "test") as project:
        (route,) = project.routes("0001")
        route.source.create()
        yield config, project


@pytest.fixture
def config(base: tuple[Path, commands.Project]) -> Path:
    return base[0]


@pytest.fixture
def moved(base: tuple[Path, commands.Project], monkeypatch: pytest.MonkeyPatch) -> Iterator[Moved]:
    """What the target holds has an ``n`` below zero, so that it shows who answered."""
    monkeypatch.setattr("migrator.gateway.mirrored._LOOK", 3600.0)
    monkeypatch.setattr("migrator.commands.records.SILENT", 3600.0)
    _, project = base
    made = Moved(project, Owner(project))
    made.route.target.create()
    for number, key in enumerate(KEYS, 1):
        made.put("source", key, number)
        made.put("target", key, -number)
    made.verified()
    with Lease(project.control, "test/0001/mirror"):
        yield made
    made.route.target.drop()
    project.control.advance(project.control.run(made.run), Phase.ABORTED)


@pytest.fixture
def games(config: Path, moved: Moved) -> Iterator[Games]:
    with Gateway.open("Game", config, "test", terms=PATIENT) as gateway:
        yield Games(gateway, moved)


# ---------------------------------------------------------------------- which reads


def test_as_many_keys_are_read_there_as_is_said_and_always_the_same(games: Games) -> None:
    assert {games.n(key) for key in KEYS} == set(range(1, 21))
    sets: list[set[str]] = []
    for part in (0.3, 0.6, 1.0):
        games.share(part)
        there = {key for key in KEYS if cast("int", games.n(key)) < 0}
        assert there == {key for key in KEYS if cast("int", games.n(key)) < 0}
        sets.append(there)
    assert set() < sets[0] < sets[1] < sets[2] == set(KEYS)
    games.share(0)
    assert {games.n(key) for key in KEYS} == set(range(1, 21))


def test_status_tells_who_answered_and_how_long_it_took(games: Games) -> None:
    assert games.moved.live.reads is None
    games.share(1.0)
    for key in KEYS:
        games.get(key, "served")
    assert games.get("none", "absent") is None
    games.reading._report()
    found: GatewayAnswers = games.moved.live.reads
    assert (found.share, found.reads, found.served, found.absent) == (1.0, 21, 20, 1)
    for seconds in (found.mirror_median, found.mirror_p99, found.primary_median):
        assert seconds is not None
        assert seconds > 0
    assert commands.reads(games.moved.project, "0001").gateways == found


# ---------------------------------------------------------------------- what they never show


def test_who_wrote_a_key_reads_it_back(games: Games) -> None:
    games.share(1.0)
    games.gateway.put("1", {"id": "1", "n": 100})
    games.gateway.update("2", {"n": 100})
    games.gateway.delete("3")
    assert [games.n(key) for key in ("1", "2", "3", "4")] == [100, 100, None, -5]
    games.know(age=1.0)
    assert [games.n(key) for key in ("1", "2", "3", "4")] == [100, 100, None, -5]
    # From here on the mirror says that it holds them. This one does not, which shows who answers.
    games.know()
    assert [games.n(key) for key in ("1", "2", "3", "4")] == [-2, -3, -4, -5]


def test_what_was_written_before_the_share_grew_is_read_back(games: Games) -> None:
    games.share(0.001)
    games.gateway.put("1", {"id": "1", "n": 100})
    commands.reads(games.moved.project, "0001", 1.0)
    until(lambda: games.reading.share == 1)
    assert games.get("1", "behind") == 100
    games.know()
    games.know()
    assert games.get("1", "served") == -2


@pytest.mark.parametrize("call", ["read", "read_entries"])
def test_what_is_given_while_the_share_begins_is_not_taken_back(
    games: Games, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    here = games.gateway._here
    primary = here.sides(here.follower.standing).primary
    read = getattr(primary, call)

    def begins(*asked: object) -> object:
        monkeypatch.setattr(primary, call, read)
        games.share(1.0)
        games.moved.put("source", "1", 100)
        return read(*asked)

    monkeypatch.setattr(primary, call, begins)
    if call == "read":
        found = games.gateway.get("1")
        assert found is not None
        assert found.value["n"] == 100
    else:
        assert games.gateway.get_entries("1", ["n"]) == {"n": 100}
    assert games.get("1", "written") == 100
    games.know()
    games.know()
    assert games.get("1", "served") == -2


def test_more_writes_than_are_remembered_are_all_read_back(
    games: Games, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.gateway.mirrored.PINNED", 3)
    games.share(1.0)
    for key in KEYS[:10]:
        games.gateway.put(key, {"id": key, "n": 100})
    assert len(games.reading._pins) == 3
    assert {games.n(key) for key in KEYS[:10]} == {100}
    assert games.n(KEYS[15]) == 16
    games.know()
    assert all(cast("int", games.n(key)) < 0 for key in KEYS)


def test_what_may_live_on_is_read_back_though_newer_writes_took_its_place(
    games: Games, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.gateway.mirrored.PINNED", 1)
    games.share(1.0)
    games.reading.wrote("1", late=50.0)
    for key in ("2", "3"):
        games.reading.wrote(key)
    games.know()
    assert games.get("1", "behind") == 2
    games.clock.now += 50
    games.know()
    assert games.get("1", "served") == -2


def test_a_condition_that_did_not_hold_is_decided_anew_at_the_primary(games: Games) -> None:
    games.share(1.0)
    old = games.gateway.get("1")
    assert old is not None
    with pytest.raises(Conflict):
        games.gateway.update("1", {"n": 7}, expected=old.version)
    new = games.gateway.get("1")
    assert new is not None
    assert games.gateway.update("1", {"n": 7}, expected=new.version).value["n"] == 7


def test_what_may_still_be_carried_out_is_looked_for_at_the_primary(
    games: Games, monkeypatch: pytest.MonkeyPatch
) -> None:
    games.share(1.0)
    games.gateway.put("1", {"id": "1", "rounds": []})
    here = games.gateway._here
    primary = here.sides(here.follower.standing).primary

    def lost(*_: object, **__: object) -> None:
        raise Transient("no answer in time", unknown=True)

    with monkeypatch.context() as patch:
        for name in ("amend", "exchange"):
            patch.setattr(primary, name, lost, raising=False)
        with pytest.raises(Transient, match="no answer in time"):
            games.gateway.append("1", "rounds", 1)
    games.know()
    games.moved.put("source", "1", 100)  # late, as it may be
    assert games.get("1", "written") == 100
    games.clock.now += PATIENT.request_life
    games.know()
    assert games.get("1", "served") == -2
    games.reading.wrote("2", late=60.0)
    for _ in range(3):  # that it was read meanwhile makes it no sooner
        games.know()
        assert games.get("2", "written") == 3
    games.clock.now += 60
    games.know()
    assert games.get("2", "served") == -3


@pytest.mark.parametrize("then", [[], ["2"]], ids=["it", "more than is remembered"])
def test_what_is_written_while_the_mirror_answers_is_given(
    games: Games, monkeypatch: pytest.MonkeyPatch, then: list[str]
) -> None:
    monkeypatch.setattr("migrator.gateway.mirrored.PINNED", 1)
    games.share(1.0)
    here = games.gateway._here
    mirror = here.sides(here.follower.standing).mirror
    read = mirror.read

    def written_meanwhile(keys: list[object]) -> list[Block | None]:
        found = read(keys)
        for key in ("1", *then):
            games.gateway.put(key, {"id": key, "n": 100})
        return found

    monkeypatch.setattr(mirror, "read", written_meanwhile)
    assert games.get("1", "lagging") == 100


def test_what_the_primary_gave_is_not_taken_back(games: Games) -> None:
    """A key that is read all the time comes to the mirror once that holds what was given."""
    games.share(1.0)
    games.moved.route.target.delete([Address("1")])
    assert games.get("1", "lagging") == 2
    assert games.suspects == ["1"]
    games.moved.put("target", "1", 2)
    for _ in range(3):
        games.clock.now += 10
        assert games.get("1", "written") == 2
    # It holds what was there when that was first given, and not what was there when it was last.
    games.know(age=15.0)
    games.moved.put("target", "1", 1)
    assert games.get("1", "lagging") == 2
    games.moved.put("target", "1", 2)
    assert games.get("1", "served") == 2
    assert not games.reading._pins


def test_a_key_is_the_same_however_it_is_spelled() -> None:
    assert len({_spelled(key) for key in (1, Int64(1), 1.0, Decimal("1.00"))}) == 1
    assert _spelled([1, "a"]) == _spelled([Int64(1), "A "])
    assert len({_spelled(key) for key in ("Jose", "jos\u00e9", "JOSE\u0301 ", "\ud800")}) == 2
    assert len({_spelled(key) for key in (1, True, "2", b"1", [3])}) == 5


# ---------------------------------------------------------------------- when the primary answers


def test_a_mirror_that_is_too_far_behind_is_not_asked(games: Games) -> None:
    games.share(1.0, stale=100.0)
    grant = games.reading._grant
    assert grant is not None
    games.clock.now = grant.until - 0.5
    assert games.get("1", "served") == -2
    games.clock.now = grant.until
    assert games.get("1", "behind") == 2
    games.know(age=98.0)
    assert games.get("2", "behind") == 3  # it knows of nothing newer
    games.know(age=50.0)
    games.know()
    assert games.get("2", "served") == -3
    grant = games.reading._grant
    assert grant is not None
    games.reading._floor = grant.holds  # what was written at that very moment it may lack
    assert games.get("2", "behind") == 3


def test_a_word_counts_from_when_the_one_before_was_not_there(games: Games) -> None:
    games.share(1.0)
    first = games.reading._grant
    assert first is not None
    games.clock.now += 50
    games.reading._look()  # it says nothing
    assert games.reading._grant is first
    games.clock.now += 50
    games.moved.say()
    games.reading._look()
    after = games.reading._grant
    # This word may have been made up as soon as the one before was there, long ago.
    assert after is not None
    assert first.holds <= after.holds <= first.holds + 1
    games.moved.by = "a successor"
    games.clock.now += 50
    games.moved.say()
    games.reading._look()
    assert games.reading._grant is after  # nothing is known of the words before its first
    games.clock.now += 1
    games.moved.say(age=7.0)
    games.reading._look()
    last = games.reading._grant
    assert last is not None
    assert last.holds == games.clock.now - 1 - 50 - 7


def test_a_word_that_comes_late_counts_no_more(games: Games) -> None:
    """The control database may carry it out when another one is there already (R6)."""
    games.share(1.0)
    first = games.reading._grant
    for _ in range(2):
        games.clock.now += 50
        games.moved.say(said=0.0)
        games.reading._look()
        assert games.reading._grant is first
    games.clock.now += 1
    games.moved.say()
    games.reading._look()
    last = games.reading._grant
    assert first is not None
    assert last is not None
    assert first.holds <= last.holds <= first.holds + 1  # and hides none


def test_a_word_of_another_reign_counts_for_nothing(games: Games) -> None:
    """It is of the mirror of then, which may have been the other side."""
    games.share(1.0)
    first = games.reading._grant
    for _ in range(3):
        games.clock.now += 1
        games.moved.say(epoch=7)
        games.reading._look()
    assert games.reading._grant is first


def test_keys_in_quarantine_are_not_read_there(games: Games) -> None:
    item = Quarantined(0, quarantine_key("1"), "Game:1", "", "too large", 1.0)
    games.moved.project.control.set_aside(games.moved.run, item)
    games.share(1.0)
    assert games.get("1", "aside") == 2
    assert games.get("2", "served") == -3


def test_of_what_has_ended_the_primary_tells(games: Games) -> None:
    rules = games.moved.route.representation
    ended = cut(Aggregate("1", {"id": "1", "n": -2}, expires=1), rules)
    games.moved.route.target.write([ended])
    games.share(1.0)
    assert games.get("1", "lagging") == 2
    games.know()
    entries = games.gateway.get_entries("1", ["n"])
    assert entries == {"n": 2}
    assert games.get("2", "served") == -3


def test_a_mirror_that_fails_is_left_alone_for_a_while(
    games: Games, monkeypatch: pytest.MonkeyPatch
) -> None:
    games.share(1.0)
    here = games.gateway._here
    mirror = here.sides(here.follower.standing).mirror

    def down(_: object) -> list[Block | None]:
        raise Terminal("it is not there")

    with monkeypatch.context() as patch:
        patch.setattr(mirror, "read", down)
        assert games.get("1", "failed") == 2
        assert games.get("2", "resting") == 3
        games.clock.now += 1.5
        assert games.get("3", "failed") == 4
        games.clock.now += 1.5
        assert games.get("4", "resting") == 5  # twice as long
    games.clock.now += 1
    assert games.get("5", "served") == -6
    assert games.get("6", "served") == -7


def test_a_mirror_that_is_slow_is_not_waited_for(config: Path, moved: Moved) -> None:
    go_on = threading.Event()
    with Gateway.open("Game", config, "test", terms=replace(QUICK, patience=0.01)) as gateway:
        games = Games(gateway, moved)
        games.share(1.0)
        mirror = gateway._here.sides(gateway._here.follower.standing).mirror
        read = mirror.read

        def waits(keys: list[object]) -> list[Block | None]:
            assert go_on.wait(60)
            return read(keys)

        mirror.read = waits  # type: ignore[method-assign]
        try:
            assert games.get("1", "slow") == 2
            assert games.get("2", "resting") == 3
        finally:
            go_on.set()


def test_a_swap_of_the_sides_ends_the_share(games: Games, monkeypatch: pytest.MonkeyPatch) -> None:
    games.share(1.0)
    owner = games.moved.owner
    with monkeypatch.context() as patch:
        # Before it looks at the share again.
        patch.setattr(games.reading, "renewed", lambda standing: None)
        owner.arm()
        assert games.n("1") == 2
    assert commands.reads(games.moved.project, "0001").share == 0
    owner.release()
    games.know()
    until(lambda: games.reading.share == 0)
    assert games.n("1") == 2
    games.share(1.0)
    assert games.n("1") == -2
    owner.hold()
    owner.flip("target")
    owner.release()
    until(lambda: games.gateway._here.follower.standing.primary == "target")
    assert games.n("1") == -2  # the primary, by now
    games.gateway.put("1", {"id": "1", "n": -100})
    with pytest.raises(Refused, match="in shadow read alone"):
        commands.reads(games.moved.project, "0001", 1.0)
    owner.hold()
    owner.flip("source")
    owner.release()
    until(lambda: games.gateway._here.follower.standing.primary == "source")
    until(lambda: games.reading._standing.primary == "source")
    games.know()
    assert games.reading.share == 0
    assert games.n("1") == 2


# ---------------------------------------------------------------------- what keeps it from that


def test_a_difference_ends_it_until_all_was_compared(games: Games) -> None:
    games.share(1.0)
    kept = ShadowReads(games.moved.project.control, games.moved.run)
    kept.differed("Game", [{"key": "Game:3", "what": "differs", "paths": ["n"]}], 0)
    until(lambda: games.reading.share == 0)
    assert games.n("1") == 2
    with pytest.raises(Refused, match="shadow reads differed at Game:3"):
        commands.reads(games.moved.project, "0001", 0.5)
    games.moved.verified()
    until(lambda: games.reading.share == 1)
    games.know()
    assert games.n("1") == -2


def test_what_the_mirror_lacks_is_compared_and_keeps_a_swap_waiting(
    config: Path, moved: Moved, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As if the mirror had said that it holds what was written, and did not.
    monkeypatch.setattr("migrator.engine.settled.settler", lambda *_: lambda: None)
    monkeypatch.setattr("migrator.gateway.shadowing._REPORT", 0.05)
    with Gateway.open("Game", config, "test", terms=PATIENT) as gateway:
        suspect = gateway._here.mirrored._suspect
        games = Games(gateway, moved)
        games.reading._suspect = suspect
        games.share(1.0)
        moved.route.target.delete([Address("1")])
        assert games.get("1", "lagging") == 2
        until(lambda: moved.live.differed == ["Game:1"])


def test_a_share_is_refused_where_nobody_knows_what_the_mirror_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migrator.commands.records.SILENT", 3600.0)
    with (
        commands.Project(make_project(tmp_path), "test") as project,
        Lease(project.control, "test/0001/mirror"),
    ):

        def refused(why: str) -> None:
            with pytest.raises((Refused, Waiting), match=why):
                commands.reads(project, "0001", 0.1)

        (route,) = project.routes("0001")
        route.source.create()
        route.target.create()
        moved = Moved(project, owner := Owner(project, Phase.BACKFILLED))
        refused("is backfilled: the mirror answers reads in shadow read alone")
        owner.run = owner.control.advance(owner.run, Phase.SHADOW_READ)
        refused("no comparison has found both sides of Game equal")
        moved.verified(differ=1)
        refused("no comparison has found both sides of Game equal")
        moved.verified()
        refused("no mirror is running, so nobody knows how far it is behind")
        owner.live.tell(lag=0.0, scanning=True)
        refused("are compared anew")
        owner.live.tell(lag=0.0, scanning=False)
        owner.arm()
        refused("a swap of the sides is not done")
        owner.release()
        owner.live.tell(lag=0.0, scanning=False)
        assert commands.reads(project, "0001", 0.1).share == 0.1
        assert commands.reads(project, "0001", 0).share == 0
        owner.control.advance(owner.run, Phase.ABORTED)
        refused("is aborted: the mirror answers")
        Owner(project, live=False)
        refused("moved at rest")


# ---------------------------------------------------------------------- the whole of it


def test_beside_a_real_mirror_and_over_real_swaps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who wrote reads it back, and nobody reads backwards, whoever answers."""
    monkeypatch.setattr("migrator.gateway.mirrored._LOOK", 0.1)
    monkeypatch.setattr("migrator.engine.held.EVERY", 0.1)
    config = make_project(tmp_path)
    with commands.Project(config, "test") as project:
        (route,) = project.routes("0001")
        route.source.create()
        made = [Aggregate(key, {"id": key, "n": 0}) for key in KEYS]
        route.source.write([cut(each, route.translation.source) for each in made])
        begin(project)
        with (
            mirroring(config),
            Gateway.open("Game", config, "test", terms=PATIENT) as writer,
            Gateway.open("Game", config, "test", terms=PATIENT) as reader,
        ):
            life = Life(writer, reader)
            until(lambda: shared(project), 120)
            until(life.is_served, 120)
            swapped(commands.cutover, project)
            assert commands.reads(project, "0001").share == 0
            life.round()
            swapped(commands.rollback, project)
            until(lambda: reader._here.mirrored._standing.epoch == 3)
            served = life.served(reader)
            life.round()
            assert life.served(reader) == served
            (status,) = commands.status(project)
            assert status.live is not None
            assert status.live.differed == []


@pytest.fixture
def cassandra_to_dynamodb(tmp_path: Path) -> Path:
    name = fresh("reads")
    return project_of(
        tmp_path, servers.cassandra(), servers.dynamodb(),
        f'{name!r}, layout=cassandra_table(key="id", columns={{"id": "text"}}, rest="others")',
        f'{name!r}, representation=["/Game/*/*"], layout="item"',
    )  # fmt: skip


@pytest.mark.parametrize("pair", ["postgresql_to_mongodb", "cassandra_to_dynamodb"])
def test_mirrors_on_servers_answer(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, pair: str
) -> None:
    monkeypatch.setattr("migrator.gateway.mirrored._LOOK", 0.1)
    monkeypatch.setattr("migrator.engine.held.EVERY", 0.1)
    config: Path = request.getfixturevalue(pair)
    with commands.Project(config, "test") as project:
        (route,) = project.routes("0001")
        if not route.source.exists():
            route.source.create()
        with (
            Gateway.open("Game", config, "test", terms=PATIENT) as writer,
            Gateway.open("Game", config, "test", terms=PATIENT) as reader,
        ):
            for key in KEYS:
                writer.put(key, {"id": key, "n": 0, "rounds": []})
            begin(project)
            life = Life(writer, reader)
            with mirroring(config):
                until(lambda: shared(project), 120)
                until(lambda: life.is_served(1, 40), 120)
            (status,) = commands.status(project)
            assert status.live is not None
            assert status.live.differed == []
        commands.abort(project, "0001", drop_target=True)
        route.source.drop()


def shared(project: commands.Project) -> bool:
    """Whether the mirror may answer all reads from now on: once it is there."""
    with suppress(Waiting):
        return commands.reads(project, "0001", 1.0).share == 1
    return False


class Life:
    """One who writes and reads back, and one who reads it all the time."""

    def __init__(self, writer: Gateway, reader: Gateway) -> None:
        self._writer, self._reader = writer, reader
        self._seen = dict.fromkeys(KEYS, 0)
        self._turn = 0

    def round(self) -> None:
        self._turn += 1
        for key in KEYS[: 1 + self._turn % 4]:
            self._writer.update(key, {"n": self._turn})
            assert number(self._writer, key) == self._turn
        assert number(self._writer, KEYS[-1]) == 0
        for key in KEYS:
            given = number(self._reader, key)
            assert given >= self._seen[key]
            self._seen[key] = given

    def served(self, gateway: Gateway) -> int:
        return gateway._here.mirrored._tally.counts.get("served", 0)

    def is_served(self, writer: int = 5, reader: int = 100) -> bool:
        """Whether both were, often enough, after one more round."""
        self.round()
        return self.served(self._writer) > writer and self.served(self._reader) > reader


def number(gateway: Gateway, key: str) -> int:
    found = gateway.get(key)
    assert found is not None
    return cast("int", found.value["n"])
