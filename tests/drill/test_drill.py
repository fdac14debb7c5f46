"""Whole drills: of a move that loses nothing, and of one that lost a write on purpose."""

from __future__ import annotations

import json
import re
import sqlite3
from pathlib import Path

import msgspec
import pytest

from migrator import commands
from migrator.cli import output
from migrator.drill import Report
from migrator.drill.history import Act, Tried
from migrator.gateway import Gateway
from migrator.model.block import Aggregate, cut, join
from migrator.model.value import Value
from migrator.render.text import Line
from tests.cli.kit import Project, new_shop, one_line

# The machine may be busy with other tests, so swaps are given time.
QUICK = [
    "--writers", "1", "--rate", "300", "--keys", "5", "--seconds", "1", "--minimum", "3",
    "--mix", "put=1,update=1,append=1,delete=1,get=1",
    "--lease", "1", "--bound", "60", "--lag", "20",
]  # fmt: skip


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    made = new_shop(tmp_path, games=30)
    made.edit(
        "migrator.toml",
        (
            "[env.dev.stores.shop]",
            "[env.dev]\nstaging = true\nrequest_life = 0.5\n\n[env.dev.stores.shop]",
        ),
    )
    return made


def held(shop: Project) -> list[tuple[object, ...]]:
    """What lies in the shop, tables and triggers included."""
    queries = (
        "SELECT * FROM game ORDER BY id",
        "SELECT * FROM round ORDER BY game, number",
        "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite%' ORDER BY name",
    )
    with sqlite3.connect(shop.root / "shop.db", timeout=60) as db:
        rows = [row for query in queries for row in db.execute(query)]
    db.close()
    return rows


def test_a_move_that_loses_nothing_passes(shop: Project) -> None:
    before = held(shop)
    done = shop.done("drill", "0001", *QUICK, "--kills", "2", "--format", "json")
    report = msgspec.convert(done.json, Report)
    assert json.loads(msgspec.json.encode(report)) == done.json
    assert (report.passed, report.reasons, report.ending) == (True, [], "aborted")
    assert {"mirror", "writer 0"} == {kill.process for kill in report.kills}
    assert all(count.acknowledged >= 3 for count in report.done.values())
    assert report.done.keys() == {"put", "update", "append", "delete", "get"}
    assert [stage.name for stage in report.stages if stage.pause] == [
        "cut over", "roll back", "cut over again",
    ]  # fmt: skip
    assert sum(report.throughput) == sum(count.acknowledged for count in report.done.values())
    assert report.lag
    # Nothing is left of it, but what it tells.
    assert held(shop) == before
    told = shop.root / "drills" / report.run
    assert json.loads(told.with_suffix(".json").read_text()) == done.json
    assert "Passed" in told.with_suffix(".html").read_text()


def lose_one(shop: Project) -> None:
    """Remove the newest aggregate of the target behind everybody's back."""
    with sqlite3.connect(shop.root / "docs.db", timeout=60) as db:
        (id,) = db.execute("SELECT id FROM collections WHERE name = 'games'").fetchone()
        newest = f"SELECT max(block) FROM entries_{id}"
        assert db.execute(f"DELETE FROM entries_{id} WHERE block = ({newest})").rowcount
    db.close()


def test_a_write_that_was_lost_on_purpose_is_found(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tell(*lines: Line | str, to_stderr: bool = False) -> None:
        if any("check" in str(line) for line in lines):
            lose_one(shop)
        output.tell(*lines, to_stderr=to_stderr)

    monkeypatch.setattr("migrator.cli.drills.tell", tell)
    answer = shop("drill", "0001", *QUICK, "--kills", "0", "--finish")
    assert answer.code == 4
    assert re.search(r"^failed +acknowledged writes are missing: 2 times", answer.out, re.MULTILINE)
    assert len(re.findall("^failed", answer.out, re.MULTILINE)) == 1
    page = shop.root / answer.out.splitlines()[-1]
    assert "Failed" in page.read_text()
    report = msgspec.json.decode(page.with_suffix(".json").read_bytes(), type=Report)
    # The mirror carries the loss on, so both sides are equal: only the history tells.
    assert all(each.clean for each in report.verified)
    assert {(fault.what, fault.side) for fault in report.faults} == {
        ("missing", "primary"), ("missing", "mirror"),
    }  # fmt: skip
    assert (report.ending, report.left, report.kills) == ("finished", 0, [])


# ---------------------------------------------------------------------- recorded traffic

REPLAY = [
    "--writers", "2", "--seconds", "0.5", "--minimum", "1", "--lease", "1", "--bound", "60",
    "--lag", "20",
]  # fmt: skip


@pytest.fixture
def recording(shop: Project) -> Path:
    """What an application does with games of the shop, recorded by its gateway."""
    settings = shop.root / "migrator.toml"
    without = settings.read_text()
    settings.write_text(f"{without}\n[env.dev.record]\nshare = 1\n")
    with Gateway.open("Game", settings, "dev") as games:
        for id in (1, 2, 3):
            games.get(id)
            games.update(id, {"player": "somebody"})
            games.append(id, "rounds", {"number": 3, "moves": "q3"})
            games.get_entries(id, ["player"])
        games.delete(3)
        games.get(3)
        rounds: list[Value] = [{"number": n, "moves": "secret"} for n in range(1, 6)]
        games.put(101, {"id": 101, "player": "secret", "score": 7, "rounds": rounds})
    settings.write_text(without)
    (file,) = (shop.root / "recordings").glob("*.jsonl")
    assert b"secret" not in file.read_bytes()
    return file


def test_what_a_gateway_recorded_is_replayed(shop: Project, recording: Path) -> None:
    before = held(shop)
    done = shop.done(
        "drill", "0001", *REPLAY, "--kills", "2", "--replay", str(recording), "--speed", "2",
        "--format", "json",
    )  # fmt: skip
    report = msgspec.convert(done.json, Report)
    assert (report.passed, report.reasons, report.left) == (True, [], 0)
    assert list(report.done) == ["put", "update", "append", "delete", "get", "get_entries"]
    assert all(count.wanted == 1 <= count.acknowledged for count in report.done.values())
    assert report.asked.mix == {
        "put": 1, "update": 3, "append": 3, "delete": 1, "get": 4, "get_entries": 3,
    }  # fmt: skip
    assert (report.asked.skew, report.asked.writers, report.asked.keys) == (None, 2, 4)
    assert report.replay is not None
    assert (report.replay.lines, report.replay.keys, report.replay.speed) == (15, 4, 2.0)
    assert (report.replay.files, report.replay.values) == ([recording.name], "synthetic")
    assert report.replay.replayed >= 15
    assert report.replay.made >= 3  # what is there when the recording begins
    assert report.replay.left_out == {}
    told = shop.root / "drills" / report.run
    assert "Replayed" in told.with_suffix(".html").read_text()
    assert held(shop) == before
    # What was shared out to the writers may hold values, and goes.
    assert not list(told.glob("replay-*"))


def double_one(shop: Project) -> None:
    """Add the last round of an aggregate of the target once more, as a second append would."""
    with commands.Project(shop.root / "migrator.toml", "dev") as project:
        (route,) = project.routes("0001")
        games = [join(block) for block in route.target.sample(1_000).blocks]
        # That the newest is lost is planted, too.
        id = sorted(each.id for each in games if each.id > 10**9 and each.value["rounds"])[0]  # type: ignore[operator,type-var]
        game = next(each for each in games if each.id == id)
        rounds = game.value["rounds"]
        assert isinstance(rounds, list)
        twice = Aggregate(id, {**game.value, "rounds": [*rounds, rounds[-1]]})
        route.target.write([cut(twice, route.representation)])


def test_what_was_planted_on_purpose_fails_a_replay_and_so_does_too_little(
    shop: Project, recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tell(*lines: Line | str, to_stderr: bool = False) -> None:
        if any("check" in str(line) for line in lines):
            lose_one(shop)
            double_one(shop)
        output.tell(*lines, to_stderr=to_stderr)

    monkeypatch.setattr("migrator.cli.drills.tell", tell)
    lines = recording.read_text().splitlines(keepends=True)
    recording.write_text("".join(
        line.replace('"Game"', '"Player"') if "get_entries" in line else line for line in lines
    ))  # fmt: skip
    words = ["--kills", "0", "--minimum", "1000000", "--replay", str(recording)]
    answer = shop("drill", "0001", *REPLAY, *words)
    assert answer.code == 4, answer
    for told in ("missing", "there twice"):
        assert re.search(f"^failed +acknowledged writes are {told}", answer.out, re.MULTILINE)
    # What was recorded of another class is told, and not asked for.
    assert re.findall(r"^failed +only [\d,]+ of (\w+) were", answer.out, re.MULTILINE) == [
        "put", "update", "append", "delete", "get",
    ]  # fmt: skip
    assert re.search(r"^left out +3 lines: Player is not of this move", answer.out, re.MULTILINE)
    assert re.search(
        r"^replayed +[\d,]+ lines, at 1 times the rate of 12", answer.out, re.MULTILINE
    )
    page = next(line for line in answer.out.splitlines() if line.endswith(".html"))
    file = (shop.root / page).with_suffix(".json")
    report = msgspec.json.decode(file.read_bytes(), type=Report)
    found = {(fault.what, fault.side) for fault in report.faults}
    assert found >= {("missing", "primary"), ("missing", "mirror"), ("twice", "primary")}


def test_a_recording_with_a_wrong_line_is_refused_before_anything(
    shop: Project, recording: Path
) -> None:
    before = held(shop)
    lines = recording.read_text().splitlines()
    lines[7] = lines[7].replace("Game", "")
    recording.write_text("\n".join(lines) + "\n")
    told = one_line(shop("drill", "0001", *REPLAY, "--replay", str(recording)), 3, "refused")
    assert f"{recording}: line 8: " in told
    assert held(shop) == before
    assert not (shop.root / "drills").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--replay", "migrator.toml", "--rate", "5"], "--rate: a recording says that itself"),
        (["--replay", "migrator.toml", "--mix", "put=1"], "--mix: a recording says that itself"),
        (["--speed", "2"], "--speed: it is for --replay"),
        (["--replay", "nowhere.jsonl"], "nowhere.jsonl"),
    ],
)
def test_options_that_would_do_nothing_are_wrong_usage(
    shop: Project, words: list[str], told: str
) -> None:
    assert told in one_line(shop("drill", "0001", *words), 64, "usage")


# ---------------------------------------------------------------------- what is refused


def test_it_is_refused_outside_of_staging(shop: Project) -> None:
    before = held(shop)
    shop.edit("migrator.toml", ("staging = true", "staging = false"))
    told = one_line(shop("drill", "0001"), 3, "refused")
    assert "environment dev is not there for drills" in told
    assert "[env.dev]  staging = true" in told
    assert held(shop) == before
    assert not (shop.root / "drills").exists()


def test_what_can_not_be_drilled_is_refused(shop: Project) -> None:
    shop.done("plan", "0001", "-o", "rest.json")
    shop.done("plan", "0001", "--live", "-o", "live.json")
    before = held(shop)
    assert "for live moves" in one_line(shop("drill", "rest.json"), 3, "refused")
    shop.done("apply", "live.json", "--until", "prepared")
    assert "is under way" in one_line(shop("drill", "live.json"), 3, "refused")
    # As one that was killed leaves it.
    (run,) = shop.done("status", "--format", "json").json
    part = shop.root / "drills" / run["run"] / "replay-0.txt"
    part.parent.mkdir(parents=True)
    part.touch()
    (part.parent / "number").write_text("5")
    tried = Tried(1, 0.0, Act.PUT, "Game", "0.1.0", None)
    (part.parent / "writer-0.0.jsonl").write_bytes(msgspec.json.encode(tried) + b"\n")
    shop.change("INSERT INTO game VALUES (1005000100, 'p', 1)")
    told = one_line(shop("drill", "live.json"), 3, "refused")
    assert "of another drill is under way" in told
    assert "where it was killed, leave that one first:  migrator" in told
    assert "the next drill of 0001 removes the keys that it left" in told
    assert part.exists()
    shop.done("abort", "0001", "--keep-target")
    reads = shop.root / "reads.jsonl"
    reads.write_text('{"at": 1, "call": "get", "class": "Game", "key": "1"}\n')
    told = one_line(shop("drill", "0001", "--replay", str(reads)), 3, "refused")
    assert "no write of Game was recorded" in told
    assert not part.exists()
    assert held(shop) == before
    assert not (part.parent / "number").exists()
    (part.parent / "number").touch()  # as one leaves it that was killed before it wrote a key
    one_line(shop("drill", "0001", "--replay", str(reads)), 3, "refused")
    assert not (part.parent / "number").exists()


def test_values_are_made_like_what_lies_there(shop: Project) -> None:
    shop.change("DELETE FROM round", "DELETE FROM game")
    told = one_line(shop("drill", "0001"), 3, "refused")
    assert "nothing lies there that values could be made like" in told


@pytest.mark.parametrize("mix", ["pot=1", "put", "put=x", "get=1", "put=1,get=-1"])
def test_a_mix_that_is_none_is_wrong_usage(shop: Project, mix: str) -> None:
    assert "--mix" in one_line(shop("drill", "0001", "--mix", mix), 64, "usage")


def rekey(shop: Project, evolve: str) -> None:
    """Have the script change the keys as well."""
    shop.edit(
        "migrations/0001_games.py",
        ("import At, Move, tables", "import *"),
        ('representation=["/Game/*"]),', f'representation=["/Game/*"]),\n    evolve=[{evolve}],'),
    )


def test_keys_that_follow_values_are_not_drilled(shop: Project) -> None:
    rekey(shop, 'ReKey(["id", "first_player"], was="id")')
    told = one_line(shop("drill", "0001"), 3, "refused")
    assert "its keys follow what aggregates hold" in told


def test_a_move_that_spreads_blocks_is_not_drilled(shop: Project) -> None:
    spread = 'SplitOut("rounds", back="game", place="number", key="{game}-{number}")'
    shop.edit(
        "migrations/0001_games.py",
        ("import At, Move, tables", "import *"),
        ('    "Game",', '    "Round", of="Game",'),
        ('representation=["/Game/*"]),', f'representation=["/Round/*"]),\n    evolve=[{spread}],'),
    )
    told = one_line(shop("drill", "0001"), 3, "refused")
    assert "it spreads each block of Game over several, and no gateway follows that" in told
    assert "keys" not in told


def test_keys_that_follow_from_one_another_are(shop: Project) -> None:
    before = held(shop)
    rekey(shop, "ReKey([Shard(4), Id()])")
    done = shop.done("drill", "0001", *QUICK, "--kills", "0", "--format", "json")
    report = msgspec.convert(done.json, Report)
    assert (report.passed, report.reasons, report.left) == (True, [], 0)
    assert held(shop) == before
