"""A move that changes keys: an application calls by the keys of its shape, on either side."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from migrator import commands
from migrator.engine.followers import Followers
from migrator.engine.swap import SwapTerms
from migrator.errors import DamagedBlock, DoesNotFit, Refused, Transient, Waiting
from migrator.gateway import Conflict, Gateway, Rekeyed
from migrator.gateway.follower import Moved
from migrator.gateway.sending import Sending
from migrator.model.block import Aggregate, Block, cut
from migrator.model.phase import Phase
from migrator.model.value import Record
from tests.ending import joined
from tests.engine.games import SETTINGS
from tests.gateway.kit import QUICK, Owner, owned, until
from tests.gateway.test_live import begin, held, mirroring, swapped
from tests.gateway.test_serve import LISTEN, Served, at, end, start
from tests.gateway.test_shape import cut_over, mirror, speaking

SCRIPT = '''"""Other keys."""

from migrator import *

revision, down_revision = "0001", None

move = Move("Game", source=At("old", "games"), target=At("new", "games"), evolve=[{evolve}])
'''
BY_PLACE = "ChangeId('place', stays='id')"
SHARDED = "ReKey([Shard(16), Id()])"


def game(place: str, n: int = 0) -> Record:
    return {"id": "1", "place": place, "n": n, "rounds": []}


def make(root: Path, evolve: str) -> Path:
    (root / "migrations").mkdir()
    (root / "migrations" / "0001_keys.py").write_text(SCRIPT.format(evolve=evolve))
    config = root / "migrator.toml"
    config.write_text(SETTINGS)
    return config


@pytest.fixture
def config(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return make(tmp_path, getattr(request, "param", BY_PLACE))


@pytest.fixture
def owner(config: Path) -> Iterator[Owner]:
    with owned(config) as owner:
        yield owner


def test_it_is_called_by_the_keys_of_the_side_that_decides(owner: Owner) -> None:
    with speaking(owner, "source") as old, speaking(owner, "target") as new:
        old.put("1", game("a"))
        found = old.append("1", "rounds", "q4")
        with pytest.raises(Rekeyed, match="those of its source now; nothing was written") as told:
            new.get("a")
        assert 'shape="source"' in told.value.hint
        cut_over(owner, old, new)
        calls = [
            lambda: old.get("1"), lambda: old.get_entries("1", ["n"]),
            lambda: old.put("1", game("b")), lambda: old.update("1", {"n": 2}),
            lambda: old.append("1", "rounds", 1), lambda: old.delete("1"),
            lambda: old.put("1", game("b"), wait=True),
            lambda: old.put("2", game("b"), expected=None),
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(Rekeyed, match="those of its target now; nothing was written"):
                call()
        assert held(owner.route.target) == {"a": {**game("a"), "rounds": ["q4"]}}
        # A version is that of the content, by whatever key it was read.
        assert new.get("a").version == found.version
        assert new.update("a", {"n": 1}, expected=found.version).value["n"] == 1
        with pytest.raises(Conflict):
            new.delete("a", expected=found.version)
        new.delete("a")
        assert new.get("a") is None


def test_a_write_that_waits_under_the_fence_is_not_carried_out_by_the_old_key(
    owner: Owner,
) -> None:
    with speaking(owner, "source") as old:
        old.put("1", game("a"))
        owner.arm()
        owner.fence()
        told: list[BaseException] = []

        def write() -> None:
            try:
                old.update("1", {"n": 1})
            except Refused as error:
                told.append(error)

        writing = threading.Thread(target=write)
        writing.start()
        mirror(owner)
        owner.flip("target")
        owner.release()
        joined(writing)
        assert [type(error) for error in told] == [Rekeyed]
        assert held(owner.route.source) == {"1": game("a")}
        assert held(owner.route.target) == {"a": game("a")}


def test_what_may_have_been_written_before_a_swap_is_told_as_unknown(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = threading.Event()

    def send(self: Sending, *_: object) -> None:
        self.sent = True
        begun.set()
        raise Moved

    with speaking(owner, "source") as old:
        monkeypatch.setattr(Sending, "send", send)
        told: list[Transient] = []

        def write() -> None:
            try:
                old.put("1", game("a"))
            except Transient as error:
                told.append(error)

        writing = threading.Thread(target=write)
        writing.start()
        assert begun.wait(60)
        owner.hold()
        owner.flip("target")
        owner.release()
        joined(writing)
        (error,) = told
        assert error.unknown
        assert "keys differ" in error.what


@pytest.mark.parametrize("config", [SHARDED], indirect=True)
def test_keys_that_follow_from_one_another_are_translated_on_both_sides(owner: Owner) -> None:
    (key,) = (made.id for made in owner.route.expected(_block(owner)))
    with speaking(owner, "source") as old, speaking(owner, "target") as new:
        first = old.put("1", game("a"), expected=None)
        mirror(owner)
        assert new.get(key).id == key
        assert new.update(key, {"n": 1}, expected=first.version).id == key
        assert old.get("1").value["n"] == 1
        assert new.get_entries(key, ["n", "place"]) == {"n": 1, "place": "a"}
        wrong = [(key[0] + 1) % 16, "1"]
        with pytest.raises(DoesNotFit, match="identifier is not"):
            new.put(wrong, game("a"))
        cut_over(owner, old, new)
        assert old.append("1", "rounds", "q4").id == "1"
        assert old.get("1").value == {**game("a", 1), "rounds": ["q4"]}
        assert new.get(key).value == old.get("1").value
        old.put("2", game("b"), expected=None)
        with pytest.raises(Conflict):
            old.put("2", game("c"), expected=None)
        old.delete("1")
        assert [id[1] for id in (block.id for block in owner.route.target.sample(9).blocks)] == [
            "2"
        ]
        assert new.get(key) is None


def _block(owner: Owner) -> Block:
    return cut(Aggregate("1", game("a")), owner.route.source.at.rules("Game"))


def test_waiting_for_both_sides_waits_until_nothing_is_left_under_the_old_key(
    config: Path,
) -> None:
    with commands.Project(config, "test") as project:
        (route,) = project.routes("0001")
        route.source.create()
        begin(project)
    opened = Gateway.open(
        "Game", config, "test", revision="0001", shape="source", terms=QUICK, shadow=1.0
    )
    with opened as games:
        until(lambda: games._here.follower.standing.phase is Phase.SHADOW_READ)
        with mirroring(config):
            games.put("1", game("a"), wait=True)
            assert held(route.target) == {"a": game("a")}
            games.update("1", {"place": "b"}, wait=True)
            assert held(route.target) == {"b": game("b")}
            until(lambda: games._here.shadows.share == 1.0)
            games.get("1")
            until(lambda: games._here.shadows._tally.counts.get("equal", 0) > 0)
            games.delete("1", wait=True)
            assert held(route.target) == {}
            assert not games._here.shadows._tally.counts.get("mismatch")
            with (
                commands.Project(config, "test") as project,
                pytest.raises(Refused, match="no gateway reads its mirror"),
            ):
                commands.reads(project, "0001", 0.5)


def test_waiting_for_both_sides_does_not_keep_a_damaged_block_from_being_replaced(
    config: Path,
) -> None:
    with commands.Project(config, "test") as project:
        (route,) = project.routes("0001")
        route.source.create()
        begin(project)
    opened = Gateway.open("Game", config, "test", revision="0001", shape="source", terms=QUICK)
    with opened as games:
        until(lambda: games._here.follower.standing.phase is Phase.SHADOW_READ)
        with mirroring(config):
            games.put("1", game("a"), wait=True)
            with closing(sqlite3.connect(config.parent / "old.db", timeout=60)) as plain, plain:
                (found,) = plain.execute("SELECT id FROM collections WHERE name = 'games'")
                plain.execute(f"UPDATE entries_{found[0]} SET value = x'c1'")
            with pytest.raises(DamagedBlock):
                games.get("1")
            games.put("1", game("b"), wait=True)
            until(lambda: held(route.target) == {"b": game("b")})


def test_old_code_goes_on_where_the_source_was_dropped(tmp_path: Path) -> None:
    config = make(tmp_path, f"{SHARDED}, Rename('place', 'where')")
    with sqlite3.connect(tmp_path / "old.db") as plain:
        plain.execute("CREATE TABLE games (id text PRIMARY KEY, place text, n int)")
    config.write_text(config.read_text().replace("embedded:///old.db", "sqlite:///old.db"))
    script = config.parent / "migrations" / "0001_keys.py"
    script.write_text(script.read_text().replace('"games")', 'tables("games"))', 1))
    opened = Gateway.open("Game", config, "test", revision="0001", shape="source", terms=QUICK)
    with opened as old, commands.Project(config, "test") as project:
        old.put("1", {"id": "1", "place": "a", "n": 1})
        begin(project)
        swapped(commands.cutover, project)
        old.update("1", {"n": 2})
        commands.finish(project, "0001", keep_source=False)
        assert old.update("1", {"n": 3}).value == {"id": "1", "place": "a", "n": 3}
        assert old.get("1").value == {"id": "1", "place": "a", "n": 3}
        old.delete("1")
        assert old.get("1") is None


def test_old_code_goes_on_until_the_cut_over_of_a_move_that_spreads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make(tmp_path, "Drop('rounds', default=[])")
    rounds = "SplitOut('rounds', back='game', bare=True, order_by='pos', key='{game}-{pos}')"
    with (config.parent / "migrations" / "0001_keys.py").open("a") as script:
        script.write(
            "moves = [move, Move('Round', of='Game', source=At('old', 'games'), "
            f"target=At('new', 'rounds'), evolve=[{rounds}])]\ndel move\n"
        )
    with commands.Project(config, "test") as project:
        project.routes("0001")[0].source.create()
        with Gateway.open(
            "Game", config, "test", revision="0001", shape="source", terms=QUICK
        ) as old:
            old.put("1", {"id": "1", "rounds": [{"pos": 0}]})
            begin(project)
            until(lambda: old._here.follower.standing.phase is Phase.SHADOW_READ)
            old.append("1", "rounds", {"pos": 1})
            assert old.get("1").value == {"id": "1", "rounds": [{"pos": 0}, {"pos": 1}]}
            with pytest.raises(Refused, match="puts them together"):
                Gateway.open("Game", config, "test", revision="0001", shape="source")
            with pytest.raises(Waiting, match="puts them together"):
                commands.cutover(project, "0001", swap=SwapTerms(gateways=True))
            old.append("1", "rounds", {"pos": 2})
            # As one does that is there again only after the last look at who can't follow.
            monkeypatch.setattr(Followers, "unable", lambda *_: [])
            swapped(commands.cutover, project)
            until(lambda: old._here.follower.standing.primary == "target")
            with pytest.raises(Refused, match="puts them together"):
                old.get("1")
            swapped(commands.rollback, project)
            until(lambda: old._here.follower.standing.primary == "source")
            assert old.get("1").value == {"id": "1", "rounds": [{"pos": n} for n in range(3)]}


def test_a_service_says_that_the_keys_of_the_other_side_count(owner: Owner) -> None:
    process = start(owner.config, *LISTEN, "--revision", "0001", "--shape", "source")
    service = Served(owner.config, at(process), process)
    assert service.call("put", id="1", value=game("a"))[0] == 200
    cut_over(owner)
    until(lambda: service.call("get", id="1")[0] != 200)
    for call in ("get", "delete"):
        status, told = service.call(call, id="1")
        assert (status, told["error"], told["unknown"]) == (421, "rekeyed", False)
    end(process)
    assert held(owner.route.target) == {"a": game("a")}


def test_the_shape_must_be_told(config: Path) -> None:
    with pytest.raises(Refused, match="changes its keys"):
        Gateway.open("Game", config, "test", revision="0001")
