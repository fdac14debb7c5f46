"""Reads and writes through a gateway, against a plain dict."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog

from migrator import commands, retry
from migrator.errors import Failed, MigratorError, Refused, Terminal, Transient
from migrator.gateway import Conflict, Gateway, Stopped, Terms
from migrator.gateway.follower import Moved
from migrator.model.block import Address, Block
from migrator.model.value import Ref
from tests.engine.games import SOURCE, game
from tests.gateway.kit import HASTY, LASTING, make_project, opened


@pytest.fixture
def games(tmp_path: Path) -> Iterator[Gateway]:
    config = make_project(tmp_path)
    with commands.Project(config, "test") as project:
        project.stores.get("old").collection("Game", SOURCE).create()
    with opened(config, LASTING) as gateway:
        yield gateway


@pytest.fixture
def amending(tmp_path: Path) -> Iterator[Gateway]:
    """On a store that changes fields where they lie."""
    config = make_project(tmp_path)
    with closing(sqlite3.connect(tmp_path / "old.db")) as plain:
        plain.execute("CREATE TABLE games (id text PRIMARY KEY, n int, done int)")
        plain.execute("CREATE TABLE rounds (game text REFERENCES games, at int, move text)")
    config.write_text(config.read_text().replace("embedded:///old.db", "sqlite:///old.db"))
    (script,) = (tmp_path / "migrations").glob("*.py")
    rounds = 'tables("rounds", order_by="at", columns={"at": "INTEGER POSITION"}, value="move")'
    place = f'At("old", tables("games", nulls="absent", rounds={rounds}))'
    made = script.read_text().replace("import At", "import tables, At", 1)
    script.write_text(made.replace('At("old", "games")', place))
    with opened(config, LASTING) as gateway:
        assert gateway._here.sides(gateway._here.follower.standing).amending
        yield gateway


def test_put_get_delete(games: Gateway) -> None:
    assert games.get("1") is None
    put = games.put("1", game(1))
    found = games.get("1")
    assert found is not None
    assert found.value == game(1)
    assert found.version == put.version
    games.delete("1")
    games.delete("1")
    assert games.get("1") is None


def test_what_would_be_taken_for_something_else_is_refused(games: Gateway) -> None:
    put = games.put("1", {"i": 1, "d": 2})
    with pytest.raises(Refused, match="one access path"):
        games.update("1", remove="id")
    with pytest.raises(Refused, match="one access path"):
        games.get_entries("1", "id")
    with pytest.raises(Refused, match="whole number of milliseconds"):
        games.put("1", {}, expires=2e12)  # type: ignore[arg-type]
    assert games.get("1") == put
    for seconds in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(Refused, match="bound is a number of seconds"):
            Terms(bound=seconds)


@pytest.mark.parametrize("odd", [object(), (1,), {1: 2}, {3}, [{"a": [object()]}]])
def test_what_is_no_value_is_refused_before_anything_is_sent(games: Gateway, odd: Any) -> None:
    put = games.put("1", {"n": 0, "rounds": []})
    for write in (
        lambda: games.put("1", {"n": odd}),
        lambda: games.put("1", odd),
        lambda: games.update("1", {"n": odd}),
        lambda: games.append("1", "rounds", odd),
        lambda: games.put(odd, {}),
    ):
        with pytest.raises(MigratorError, match=r"is no kind|is no text|is a record"):
            write()
    assert games.get("1") == put


def test_entries(games: Gateway) -> None:
    games.put("1", game(1))
    paths = ["firstPlayer", "rounds[1].moves[0]", "rounds[9]", "no"]
    assert games.get_entries("1", paths) == {
        "firstPlayer": Ref("Player", "mary"), "rounds[1].moves[0]": "q1"
    }  # fmt: skip
    assert games.get_entries("2", paths) is None


def test_update_and_append(games: Gateway) -> None:
    games.put("1", game(1))
    games.update("1", {"secondPlayer": Ref("Player", "ann"), "rounds[0].spell": "x"}, remove=["id"])
    after = games.append("1", "rounds", {"moves": ["q4"]})
    expected = game(1)
    del expected["id"]
    expected["secondPlayer"] = Ref("Player", "ann")
    expected["rounds"][0]["spell"] = "x"  # type: ignore[index]
    expected["rounds"].append({"moves": ["q4"]})  # type: ignore[attr-defined]
    assert after.value == expected
    found = games.get("1")
    assert found is not None
    assert found.value == expected
    assert found.version == after.version


def test_what_a_change_where_it_lies_does_not_do_is_done_all_the_same(amending: Gateway) -> None:
    first = amending.put("1", {"id": "1", "n": 1, "done": 0, "rounds": ["a"]})
    second = amending.update("1", {"n": 2}, remove=["done"])
    assert second.value == {"id": "1", "n": 2, "rounds": ["a"]}
    for write in (
        lambda: amending.update("1", {"n": 3}, expected=first.version),
        lambda: amending.append("1", "rounds", "b", expected=first.version),
    ):
        with pytest.raises(Conflict, match="nothing was written"):
            write()
    assert amending.get("1") == second
    assert amending.append("1", "rounds", "b").value["rounds"] == ["a", "b"]


def test_conditions(games: Gateway) -> None:
    first = games.put("1", game(1), expected=None)
    with pytest.raises(Conflict, match="none was expected"):
        games.put("1", game(2), expected=None)
    second = games.update("1", {"n": 1}, expected=first.version)
    for write in (
        lambda: games.put("1", game(3), expected=first.version),
        lambda: games.update("1", {"n": 2}, expected=first.version),
        lambda: games.append("1", "rounds", 1, expected=first.version),
        lambda: games.delete("1", expected=first.version),
        lambda: games.put("2", game(2), expected=first.version),
        lambda: games.delete("2", expected=first.version),
    ):
        with pytest.raises(Conflict, match="nothing was written"):
            write()
    assert games.get("2") is None
    found = games.get("1")
    assert found is not None
    assert found.version == second.version
    games.delete("1", expected=second.version)
    assert games.get("1") is None


def test_of_two_who_write_the_same_on_one_condition_one_is_told_that_it_did(
    games: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    primary: Any = games._here.sides(games._here.follower.standing).primary
    exchange = primary.exchange

    def second(*request: object) -> object:
        assert exchange(*request)  # somebody else was faster
        return exchange(*request)

    monkeypatch.setattr(primary, "exchange", second)
    with pytest.raises(Conflict, match="nothing was written"):
        games.put("new", {"by": "a worker"}, expected=None)
    free = games.put("taken", {"by": None})
    with pytest.raises(Conflict, match="nothing was written"):
        games.update("taken", {"by": "a worker"}, expected=free.version)


@pytest.mark.parametrize("carried_out", [True, False])
def test_what_has_no_answer_is_sent_again_but_an_append(
    games: Gateway, monkeypatch: pytest.MonkeyPatch, carried_out: bool
) -> None:
    """R12: what may be there already would be there twice."""
    games.put("1", {"n": 0, "rounds": []})
    primary: Any = games._here.sides(games._here.follower.standing).primary
    sent: list[str] = []

    def loses(name: str) -> Callable[..., object]:
        send = getattr(primary, name)

        def first(*request: object) -> object:
            sent.append(name)
            if len(sent) == 1:
                if carried_out:
                    send(*request)
                raise Transient("no answer in time", unknown=True)
            return send(*request)

        return first

    for name in ("exchange", "write"):
        monkeypatch.setattr(primary, name, loses(name))
    with pytest.raises(Transient, match="no answer in time") as lost:
        games.append("1", "rounds", 1)
    assert (lost.value.unknown, sent) == (True, ["exchange"])
    there = {"n": 0, "rounds": [1] if carried_out else []}
    assert games.get("1").value == there  # type: ignore[union-attr]
    sent.clear()
    games.update("1", {"n": 5})
    assert games.get("1").value == {**there, "n": 5}  # type: ignore[union-attr]
    sent.clear()
    games.put("1", {"n": 6})
    assert sent == ["write", "write"]
    assert games.get("1").value == {"n": 6}  # type: ignore[union-attr]


@pytest.mark.parametrize("then", ["the lease ran out", "the store was fenced"])
def test_an_append_that_may_be_there_is_not_begun_anew(
    games: Gateway, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """R12, also where a store repeats a request by itself."""
    games.put("1", {"rounds": []})
    follower, sent = games._here.follower, list[object]()
    primary: Any = games._here.sides(follower.standing).primary
    exchange = primary.exchange
    renewed = threading.Timer(0.1, lambda: follower._grant(follower._clock(), 60.0))

    def is_lost(*change: object) -> object:
        sent.append(change)
        done = exchange(*change)
        if len(sent) == 1:
            if then == "the lease ran out":
                follower._until = 0.0
                renewed.start()
            raise Transient("no answer in time", unknown=True)
        if len(sent) == 2 and then == "the store was fenced":
            monkeypatch.setattr(follower, "look", lambda _: True)
            raise Terminal("this server takes no writes")
        return done

    monkeypatch.setattr(primary, "exchange", lambda *change: retry.request(is_lost, *change))
    with pytest.raises(Transient, match="not known whether this was carried out") as lost:
        games.append("1", "rounds", 1)
    assert lost.value.unknown
    assert games.get("1").value == {"rounds": [1]}  # type: ignore[union-attr]
    renewed.cancel()


def test_a_write_that_is_moved_again_and_again_ends_at_its_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_project(tmp_path)
    with opened(config, replace(LASTING, bound=0.2)) as games:

        def moves(_: object) -> int:
            raise Moved

        monkeypatch.setattr(games._here.follower, "check", moves)
        with pytest.raises(Transient, match="it was not written within") as raised:
            games.put("1", {"n": 1})
        assert raised.value.unknown


@pytest.mark.parametrize("lost", [False, True])
def test_a_change_that_others_always_overtake_is_unknown_where_an_answer_was_lost(
    games: Gateway, monkeypatch: pytest.MonkeyPatch, lost: bool
) -> None:
    games.put("1", {"n": 0})
    primary: Any = games._here.sides(games._here.follower.standing).primary
    answers = [lost]

    def exchange(*_: object) -> bool:
        if answers and answers.pop():
            raise Transient("no answer in time", unknown=True)
        return False

    monkeypatch.setattr(primary, "exchange", exchange)
    monkeypatch.setattr("migrator.gateway.exchanging._TRIES", 3)
    told, unknown = (Transient, "is not known") if lost else (Failed, "others keep writing it")
    with pytest.raises(told, match=unknown):
        games.update("1", {"n": 1})
    assert games.update("1", {"n": 0}).value == {"n": 0}  # what changes nothing is not sent


@pytest.mark.parametrize("gone", [False, True], ids=["written over", "deleted"])
def test_what_a_change_begun_anew_is_told_says_nothing_of_the_tries_before(
    games: Gateway, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """One was carried out, and somebody else has written over it, or deleted it."""
    primary: Any = games._here.sides(games._here.follower.standing).primary
    games.put("1", {"n": 9})
    theirs = primary.read(["1"])
    games.put("1", {"n": 0})
    exchange, says = primary.exchange, ["is lost", "was overtaken"]

    def faulty(*request: object) -> object:
        if not says:
            raise Terminal("this server takes no writes")
        if says.pop(0) == "was overtaken":
            if gone:
                primary.delete([Address("1")])
            return False
        assert exchange(*request)
        primary.write(theirs)
        raise Transient("no answer in time", unknown=True)

    monkeypatch.setattr(primary, "exchange", faulty)
    with pytest.raises(Transient, match="not known whether this was carried out") as lost:
        games.update("1", {"n": 1})
    assert lost.value.unknown


@pytest.mark.parametrize(
    "then",
    [
        Transient("it is busy"),
        Terminal("this server takes no writes"),
        Conflict("it has version 3, and 1 was expected; nothing was written"),
        Stopped("writes are stopped; nothing was written"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_a_later_sending_is_told_says_nothing_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: MigratorError
) -> None:
    """It may have been carried out, and may be still (R6)."""
    config = make_project(tmp_path)
    with commands.Project(config, "test") as project:
        project.stores.get("old").collection("Game", SOURCE).create()
    with opened(config, replace(LASTING, bound=HASTY.bound)) as games:
        follower = games._here.follower
        primary: Any = games._here.sides(follower.standing).primary
        write, says = primary.write, [Transient("no answer in time", unknown=True)]

        def denies(blocks: list[object]) -> object:
            if says:
                write(blocks)
                if isinstance(then, Stopped):  # what it is told where its lease ran out
                    monkeypatch.setattr(follower, "_may", lambda: False)
                raise says.pop()
            raise then

        monkeypatch.setattr(primary, "write", denies)
        with pytest.raises(Transient) as lost:
            games.put("1", {"n": 1})
        assert lost.value.unknown
        assert games.get("1").value == {"n": 1}  # type: ignore[union-attr]
        if isinstance(then, Transient):
            then.unknown = False
        with pytest.raises(type(then)) as refused:
            games.put("1", {"n": 2})
        assert not getattr(refused.value, "unknown", False)


def test_the_log_of_an_application_is_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_project(tmp_path)
    with caplog.at_level(logging.INFO, "migrator"), opened(config):
        structlog.get_logger("migrator.gateway").info("gateway sees", cls="Game")
    assert capsys.readouterr() == ("", "")
    assert "event='gateway sees' cls='Game'" in caplog.text


def test_a_change_of_what_turns_out_unreadable_is_told_as_perhaps_done(
    games: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Amends:
        def amend(self, id: str, *change: object) -> Block:
            return Block(id, {"n": 1, "n[0]": 1})

    sides = games._here.sides(games._here.follower.standing)
    monkeypatch.setitem(sides.__dict__, "amending", Amends())
    with pytest.raises(Transient, match="it was changed") as raised:
        games.append("1", "rounds", 2)
    assert raised.value.unknown
