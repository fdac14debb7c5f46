"""Exit codes tell a pipeline what happened: one test for each."""

from __future__ import annotations

import sqlite3

import pytest

from tests.cli.kit import PATIENT, Project, one_line


def test_0_and_2_and_3_of_a_plan(shop: Project) -> None:
    assert shop("plan").code == 0
    assert shop("plan", "--detailed-exitcode").code == 2
    shop.done("apply", "0001", "--yes")
    assert shop("plan", "0001", "--detailed-exitcode").code == 0
    shop.done("rollback", "0001")
    shop.done("abort", "0001", "--keep-target")
    shop.convert("player", "refuse")
    assert shop("plan", "0001", "--detailed-exitcode").code == 3


def test_1_where_a_store_does_not_answer(shop: Project) -> None:
    shop.write(
        "migrator.toml",
        (shop.root / "migrator.toml").read_text()
        + '\n[env.dev.stores.far]\nurl = "postgresql://app@127.0.0.1:1/x"\n',
    )
    answer = shop("stores")
    assert answer.code == 1
    assert "docs  embedded" in answer.out
    assert "far   failed:" in answer.out
    found = {row["name"]: row["ok"] for row in shop("stores", "--format", "json").json}
    assert found == {"docs": True, "far": False, "shop": True}


def test_4_where_the_sides_differ(shop: Project) -> None:
    shop.done("apply", "0001", "--yes")
    shop.change("UPDATE game SET score = 77 WHERE id = 2", "INSERT INTO game VALUES (9, 'x', 0)")
    answer = shop("verify", "0001")
    assert answer.code == 4
    assert "Game:2  differs" in answer.out
    assert "score: 77 (int32) / 2 (int32)" in answer.out
    assert "Game:9  missing" in answer.out
    found = shop("verify", "0001", "--format", "json")
    assert found.code == 4
    assert [(row["differ"], row["missing"]) for row in found.json] == [(1, 1)]
    # A rollback would lose nothing of the target's, but the sides differ: it has to be said.
    one_line(shop("rollback", "0001"), 3, "refused")
    shop.done("rollback", "0001", "--discard")
    told = one_line(shop("apply", "0001"), 4, "mismatch")
    assert "migrator verify 0001 --format json" in told


def test_5_where_keys_are_in_quarantine(shop: Project) -> None:
    shop.change("UPDATE game SET player = id WHERE id < 3")
    shop.convert("player", "quarantine")
    assert "--accept E103" in one_line(shop("apply", "0001", "--yes"), 3, "refused")
    apply = ("apply", "0001", "--yes", "--accept", "E103", "--log-level", "error")
    told = one_line(shop(*apply), 5, "waiting")
    assert "in quarantine: Game:3" in told
    assert "quarantine" in shop.done("status").out
    assert "Game:3  path player" in shop.done("quarantine", "list", "0001").out
    answer = shop("quarantine", "retry", "0001")
    assert (answer.code, answer.out) == (5, "0 written, 1 remain in quarantine\n")
    shop.change("UPDATE game SET player = '3' WHERE id = 3")
    assert shop.done("quarantine", "retry", "0001").out == "1 written, 0 remain in quarantine\n"
    assert "nothing is in quarantine" in shop.done("quarantine", "list", "0001").out
    assert "3 blocks equal" in shop.done("apply", "0001").out


def test_0_where_the_keys_in_quarantine_are_accepted_by_name(shop: Project) -> None:
    shop.change("UPDATE game SET player = id WHERE id < 3")
    shop.convert("player", "quarantine")
    shop("apply", "0001", "--yes", "--accept", "E103")
    assert shop("apply", "0001", "--accept-key", "Game:2").code == 5
    keys = ("--accept-key", "Game:3", "--accept-key", "Game:9")
    done = shop.done("apply", "0001", *keys, "--accept", "E301", "--why", "a bot's")
    assert "docs:games is the primary now" in done.out
    assert done.err.splitlines() == [
        "--accept E301: the plan has no such finding to accept",
        "--accept-key Game:9: no block of that name is set aside",
    ]
    told = shop.done("log", "0001").out
    assert "keys=Game:3" in told
    assert "why=a bot's" in told
    assert "found=player is text that is not the plain form of a whole number" in told


@pytest.mark.parametrize("live", [False, True], ids=["at rest", "live"])
def test_3_where_a_finish_would_drop_what_lies_nowhere_else(shop: Project, live: bool) -> None:
    shop.change("UPDATE game SET player = id WHERE id < 3")
    shop.convert("player", "quarantine")
    if live:
        shop.done("plan", "0001", "--live", "-o", "live.json")
        shop.done("apply", "live.json", "--accept", "E103", "--until", "shadow_read")
        assert "no mirror is running" in shop.done("status").out
        shop.done("cutover", "0001", "--accept-key", "Game:3", *PATIENT.split())
    else:
        shop.done("apply", "0001", "--yes", "--accept", "E103", "--accept-key", "Game:3")
    script = shop.root / "migrations/0001_games.py"
    before = script.read_text()
    script.write_text(before.replace('"games"', '"others"'))
    assert "is no longer what run" in one_line(shop("finish", "0001", "--yes"), 3, "refused")
    script.write_text(before)
    answer = shop("finish", "0001", "--yes")
    assert answer.code == 3, answer
    lost = "refused: 1 blocks in quarantine lie nowhere else, and would be lost: Game:3"
    assert lost in answer.err
    with sqlite3.connect(shop.root / "shop.db") as db:
        assert db.execute("SELECT count(*) FROM game").fetchone() == (3,)
    db.close()
    unasked = shop("finish", "0001", "--accept-key", "game:3")
    assert unasked.err.startswith("--accept-key game:3: no block of that name is set aside\n")
    assert unasked.code == 64  # there is nobody to ask
    keys = ("--accept-key", "Game:3", "--accept-key", "game:3")
    finished = shop.done("finish", "0001", "--yes", *keys)
    assert "dropped: shop:game" in finished.out
    assert finished.err == "--accept-key game:3: no block of that name is set aside\n"


def test_0_where_the_source_is_kept_with_what_lies_nowhere_else(shop: Project) -> None:
    shop.change("UPDATE game SET player = id WHERE id < 3")
    shop.convert("player", "quarantine")
    shop.done("apply", "0001", "--yes", "--accept", "E103", "--accept-key", "Game:3")
    assert "kept: shop:game" in shop.done("finish", "0001", "--yes", "--keep-source").out


def test_3_where_the_script_is_no_longer_that_of_the_run(shop: Project) -> None:
    script = shop.root / "migrations/0001_games.py"
    before = script.read_text()
    shop.done("apply", "0001", "--yes")
    assert "is moved at rest" in one_line(shop("repair", "0001"), 3, "refused")
    # Otherwise `finish` would drop what the script names now.
    script.write_text(before.replace('"game"', '"round"').replace("rounds=", "x="))
    for words in (["finish", "0001", "--yes"], ["rollback", "0001"], ["verify", "0001"],
                  ["rollback", "0001", "--discard"]):  # fmt: skip
        assert "is no longer what run" in one_line(shop(*words), 3, "refused")
    script.write_text(before.replace(', rounds=tables("round", order_by="number")', ""))
    one_line(shop("finish", "0001", "--yes"), 3, "refused")
    script.write_text("# A comment changes nothing.\n" + before)
    shop.done("rollback", "0001")
    script.write_text(before.replace('"games"', '"others"'))
    told = one_line(shop("abort", "0001", "--drop-target"), 3, "refused")
    assert "restore it" in told


@pytest.mark.parametrize("format", ["text", "json"])
def test_64_for_wrong_words(shop: Project, format: str) -> None:
    assert shop("plan", "--nothing", "--format", format).code == 64
