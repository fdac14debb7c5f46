"""What leaves the program: escaped text, sizes and spans for people, JSON with stable keys."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from migrator.cli import main, output
from migrator.cli.results import results
from migrator.render.text import Line, columns, duration, shown, shown_json, size
from tests.cli.kit import PATIENT, Project

PLAN_0001 = """\
0001  Games and their rounds, out of the shop.   [dev]

  Game    shop:game  EAO, tables   ->   docs:games  EAO, entries

  + create    3 blocks    3 entries    SIZE
  ~ change    0
  - delete    0
  = leave     0

  for example Game:1
    + .  SIZE   id, player, score, rounds

  kinds      8 paths, all held natively
  limits     largest block SIZE (Game:1); longest key SIZE of SIZE; 3 of 500 levels
  work       3 blocks to read in 1 range; 1 range read, 1 bulk write; RATE
  rollback   lossless, at any time before finish

plans/0001.dev.json    apply it with:  migrator apply plans/0001.dev.json
"""

CHANGED = """\
  + create    1 block
  ~ change    1
  - delete    1
  = leave     1
  entries     +3  ~1  -3   of 9, SIZE in all

  for example Game:4
    + rounds[0]  SIZE   number, moves
    + rounds[1]  SIZE   number, moves
    + .          SIZE   id, player, score

  change, for example Game:2
    ~ .  SIZE
        score: 2 (int32) / 22 (int32)
"""


def normal(text: str) -> str:
    """The text without what depends on the machine and on sizes."""
    text = re.sub(r"(; about [^,]*)?, [\d,.]+ blocks/s measured", "; RATE", text)
    return re.sub(r"[\d,.]+ (B|KB|MB|GB)\b", "SIZE", text)


def test_a_plan_reads_like_a_diff(shop: Project) -> None:
    assert normal(shop.done("plan").out) == PLAN_0001


def test_a_plan_tells_what_it_would_change_in_a_target_that_holds_blocks(shop: Project) -> None:
    rounds = ('["/Game/*"]', '["/Game/*/rounds[*]", "/Game/*"]')
    shop.edit("migrations/0001_games.py", rounds)
    shop.done("apply", "0001", "--yes", "--until", "backfilled")
    shop.done("abort", "0001", "--keep-target")
    shop.change(
        "UPDATE game SET score = 22 WHERE id = 2",
        "DELETE FROM round WHERE game = 1",
        "DELETE FROM game WHERE id = 1",
        "INSERT INTO game VALUES (4, 'p4', 4)",
        "INSERT INTO round VALUES (4, 1, 'q'), (4, 2, 'q')",
    )
    told = normal(shop.done("plan", "0001").out)
    assert CHANGED in told
    assert "A107  docs:games holds blocks that shop:game lacks: they will be deleted" in told
    refused = shop("apply", "0001", "--yes")
    assert refused.code == 3
    assert "--accept A107" in refused.err
    done = shop.done("apply", "0001", "--yes", "--accept", "A107")
    assert "3 blocks equal on both sides" in done.out
    assert "codes=A107" in shop.done("log", "0001").out


def test_nothing_in_a_text_steers_a_terminal() -> None:
    assert shown("a\x1b[31mb\x9b2Jc\n\u202e\ud800") == "a\\x1b[31mb\\x9b2Jc\\n\\u202e\\ud800"
    assert json.loads(shown_json(json.dumps(["\x1b\x9b\u202e"], ensure_ascii=False))) == [
        "\x1b\x9b\u202e"
    ]


def test_names_from_data_are_escaped(shop: Project) -> None:
    shop.change('ALTER TABLE game ADD COLUMN "\x1b[2J\x9b" TEXT')
    told = shop.done("plan").out
    assert "\\x1b[2J\\x9b" in told
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", told)
    assert not re.search("[\x7f-\x9f]", shop.done("plan", "--format", "json").out)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (8112, "8,112 B"), (41_000, "41 KB"), (812e6, "812 MB"), (1.27e6, "1.27 MB"),
     (999_600, "1 MB"), (2.5e12, "2.5 TB")],
)  # fmt: skip
def test_sizes(number: float, text: str) -> None:
    assert size(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (0.5, "0.5 s"), (1.2, "1 s"), (100, "1 min 40 s"), (3600, "1 h"),
     (93_700, "1 d 2 h"), (-1, "0.0 s")],
)  # fmt: skip
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_columns_are_aligned_and_not_padded_at_the_end() -> None:
    assert list(columns([["a", "b"], ["ccc", ""]])) == ["a    b", "ccc"]


def test_styles_are_for_terminals_alone(capsys: pytest.CaptureFixture[str]) -> None:
    output.tell(Line("plain", "red"))
    assert capsys.readouterr().out == "plain\n"


def test_json_has_the_documented_keys(shop: Project) -> None:
    calls = [
        "init below", "new More --repartition Game", "check", "history", "heads", "stores",
        "stores --kinds", "plan 0001", "show 0001",
        "apply 0001 --yes --until dual_write", "throttle 0001 --rate 1000", "pause 0001",
        "resume 0001", "apply 0001 --yes", "status", "verify 0001",
        "log 0001", "quarantine list 0001", "rollback 0001", "quarantine retry 0001",
        "abort 0001 --keep-target", "stamp 0001", "current", "plan 0002", "apply 0002 --yes",
        "finish 0002 --yes", "status --watch 0002", "stamp 0003", "plan", "apply",
    ]  # fmt: skip
    live = {"drill", "mirror", "cutover", "shadow", "shadow --share", "reads", "repair", "serve"}
    assert answered(shop, calls) == results().keys() - live


def test_json_of_a_live_move_has_the_documented_keys(shop: Project) -> None:
    calls = [
        "plan 0001 --live -o live.json", "apply live.json --until shadow_read", "status",
        "shadow --share 1% 0001", "reads 0001", f"cutover 0001 --dry-run {PATIENT}",
        f"cutover 0001 {PATIENT}",
        "status", f"rollback 0001 {PATIENT}", f"cutover 0001 {PATIENT}",
        "finish 0001 --yes --keep-source", "mirror 0001", "log 0001",
    ]  # fmt: skip
    assert answered(shop, calls) >= {"mirror", "cutover", "shadow --share", "reads"}


def test_a_live_move_reads_like_one(shop: Project) -> None:
    made = shop.done("plan", "0001", "--live", "-o", "live.json").out
    assert "live: the applications go on writing, followed by " in made
    goes_on = "the mirror has to go on:  migrator mirror 0001\n"
    told = shop.done("apply", "live.json", "--until", "shadow_read").out
    assert f"{goes_on}go on with:  migrator cutover 0001" in told
    told = shop.done("cutover", "0001", "--dry-run", *PATIENT.split()).out
    assert re.search(r"rehearsed +.*stays? the primary; writes were stopped for \d+ ms", told)
    told = shop.done("cutover", "0001", *PATIENT.split()).out
    assert re.search(r"cut over +.*the primary now; writes were stopped for \d+ ms", told)
    assert goes_on in told
    assert "rollback is safe" in shop.done("status").out
    told = shop.done("rollback", "0001", *PATIENT.split()).out
    assert f"every write since the cut-over is kept\n{goes_on}" in told
    refused = shop("rollback", "0001", "--discard")
    assert (refused.code, "loses nothing" in refused.err) == (3, True)


def answered(shop: Project, calls: list[str]) -> set[str]:
    """Make calls whose results must have the keys of their types; the commands that they name."""
    types, seen = results(), set()
    for call in calls:
        words = call.split()
        name = next(n for n in (" ".join(words[:2]), words[0]) if n in types)
        found = shop.done(*words, "--format", "json")
        assert found.err == ""
        told = msgspec.convert(found.json, types[name])
        # No key but those of the type, which convert would pass over.
        assert json.loads(msgspec.json.encode(told, enc_hook=str)) == found.json
        seen.add(name)
    return seen


def test_an_error_as_json(shop: Project) -> None:
    answer = shop("plan", "0009", "--format", "json")
    assert answer.json == {
        "error": "there is no revision '0009'",
        "where": "",
        "hint": "known: 0001, 0002",
        "exit_code": 3,
        "kind": "refused",
    }
    assert answer.err == ""
    assert shop("--format", "json", "plan", "--ful").json["exit_code"] == 64
    assert shop("blan", "--format=json").json["kind"] == "usage"


def test_help_and_version(shop: Project) -> None:
    assert "plan " in shop.done("--help").out
    assert re.fullmatch(r"migrator \d+\.\d+.*\n", shop.done("--version").out)
    assert "--until" in shop.done("apply", "-h").out


def test_the_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from migrator.cli import main; main(['--help']);"
        "print([n for n in ('sqlalchemy', 'alembic', 'rich', 'structlog', 'msgspec', 'tenacity',"
        " 'migrator.model.value', 'migrator.commands') if n in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_text_that_the_terminal_lacks_is_escaped(shop: Project) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "migrator", "new", "Größe 数"],
        cwd=shop.root, env={**os.environ, "PYTHONIOENCODING": "ascii"},
        stdin=subprocess.DEVNULL, capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout.isascii()


@pytest.mark.parametrize("format", ["text", "json"])
def test_an_output_that_is_full(shop: Project, format: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "migrator", "history", "--format", format],
            cwd=shop.root, env=shop.environment, stdin=subprocess.DEVNULL,
            stdout=full, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "failed: no space left on device\n")


@pytest.mark.parametrize(
    ("call", "code"), [("stamp 0001 <&- >&- 2>&-", 0), ("finish 0001 <&- >&-", 3)]
)
def test_streams_that_are_closed(shop: Project, call: str, code: int) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" -m migrator {call}', sys.executable],
        cwd=shop.root, env=shop.environment, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == code
    assert done.stderr.startswith("refused: there is no run of 0001" if code else "")
    assert shop.done("history", "--format", "json").json[0]["done"] is (code == 0)


def test_main_returns_the_code_and_gives_no_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("password=hunter2")

    monkeypatch.setattr("migrator.settings.load_settings", broken)
    monkeypatch.setattr("migrator.commands.project.load_settings", broken)
    handler = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    assert main(["status"]) == 1
    signal.signal(signal.SIGTERM, handler[0])
    signal.signal(signal.SIGINT, handler[1])
    told = capsys.readouterr().err
    assert re.fullmatch(
        r"failed: internal error: KeyError at migrator/commands/project\.py:\d+ "
        r"\(run with MIGRATOR_DEBUG=1 for the traceback\)\n",
        told,
    )
