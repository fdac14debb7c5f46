"""Bad input: one clear line that says what, where and what to do, the right code, no traceback,
and nothing changed."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.cli.kit import ROUNDS, SETTINGS, Answer, Project, new_shop, one_line


def refused(answer: Answer) -> str:
    return one_line(answer, 3, "refused")


def failed(answer: Answer) -> str:
    return one_line(answer, 1, "failed")


def usage(answer: Answer) -> str:
    return one_line(answer, 64, "usage")


@pytest.fixture
def a_trace() -> None:
    """For tests that make a plan or a run on their way."""


leaves = pytest.mark.usefixtures("a_trace")


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(shop: Project, request: pytest.FixtureRequest) -> Iterator[None]:
    """No plan, no collection, no run: a call that is refused leaves nothing."""
    shop.write("mine.toml", SETTINGS)
    yield
    if "a_trace" not in request.fixturenames:
        assert not list(shop.root.glob("plans/*"))
        assert shop.done("status", "--format", "json", "--config", "mine.toml").json == []
        nothing_in(shop.root / "docs.db")


def nothing_in(file: Path) -> None:
    """Check that an embedded store holds no collection."""
    if file.exists():
        with sqlite3.connect(file) as db:
            assert db.execute("SELECT count(*) FROM collections").fetchone() == (0,)
        db.close()


def with_store(shop: Project, url: str, more: str = "") -> None:
    text = SETTINGS.replace('"sqlite:///shop.db"', f'"{url}"\n{more}')
    shop.write("migrator.toml", text)


def test_an_unreachable_store(shop: Project) -> None:
    with_store(shop, "postgresql://app@127.0.0.1:1/shop")
    told = failed(shop("plan"))
    assert "127.0.0.1:1" in told or "port 1 " in told
    assert "shop" in told
    assert failed(shop("apply", "0001", "--yes"))


def test_a_wrong_password(shop: Project, postgresql_url: str) -> None:
    parts = urlsplit(postgresql_url)
    with_store(
        shop, f"postgresql://nobody@{parts.hostname}:{parts.port}/postgres", 'password = "hunter2"'
    )
    told = failed(shop("plan"))
    assert "nobody" in told
    assert "hunter2" not in told


def test_a_wrong_password_that_the_server_asks_for(shop: Project, mariadb_url: str) -> None:
    parts = urlsplit(mariadb_url)
    with_store(
        shop, f"mariadb://{parts.username}@{parts.hostname}:{parts.port}/mysql",
        'password = "hunter2"',
    )  # fmt: skip
    told = failed(shop("plan"))
    assert "denied" in told
    assert "hunter2" not in told


def test_mongodb_that_does_not_answer(shop: Project) -> None:
    url = "mongodb://127.0.0.1:1/games?serverSelectionTimeoutMS=300"
    shop.write("migrator.toml", SETTINGS.replace("embedded:///docs.db", url))
    told = failed(shop("plan"))
    assert told.startswith("failed: docs")
    assert "127.0.0.1:1" in told
    assert "check that it runs" in told


def test_a_missing_table(shop: Project) -> None:
    script = shop.root / "migrations/0001_games.py"
    script.write_text(script.read_text().replace('tables("round"', 'tables("rounds"'))
    assert "there is no table 'rounds'" in refused(shop("plan"))
    script.write_text(script.read_text().replace('tables("game"', 'tables("gamme"'))
    assert "gamme" in failed(shop("apply", "0001", "--yes"))


def test_a_missing_source_collection(shop: Project) -> None:
    told = failed(shop("plan", "0002"))
    assert told.startswith("failed: there is nothing at docs:games\n")
    assert "migrator apply 0001" in told
    shop.done("stamp", "0001")
    assert "check the name" in failed(shop("plan", "0002"))


def test_a_script_with_a_syntax_error(shop: Project) -> None:
    shop.write("migrations/0002_rounds.py", ROUNDS.replace("move = Move(", "move = = Move("))
    told = refused(shop("plan"))
    assert told.startswith("refused: migrations/0002_rounds.py:7: syntax error")


def test_a_script_that_does_not_run(shop: Project) -> None:
    shop.write("migrations/0002_rounds.py", ROUNDS.replace("import At, Move", "import At, Mov"))
    assert "migrations/0002_rounds.py:3: the script does not run" in refused(shop("check"))


def test_an_incomplete_list_of_rules(shop: Project) -> None:
    text = ROUNDS.replace('["/Game/*/rounds[*]", "/Game/*"]', '["/Game/*/rounds[*]"]')
    shop.write("migrations/0002_rounds.py", text)
    told = refused(shop("plan"))
    assert told.startswith("refused: migrations/0002_rounds.py:7: move of Game: ")


def test_an_unknown_store_name(shop: Project) -> None:
    shop.write("migrations/0002_rounds.py", ROUNDS.replace('"docs"', '"dogs"'))
    told = refused(shop("plan", "0002"))
    assert "'dogs' is no store" in told
    assert "known: docs, shop" in told


def test_an_unknown_scheme(shop: Project) -> None:
    with_store(shop, "mangodb://host/x")
    assert "mangodb://" in refused(shop("plan"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no toml [",
        "[env.dev]\nstore = 1\n",
        "default_env = 'prod'\n[env.dev]\n",
        "[env.a]\n[env.b]\n",
    ],
)
def test_bad_settings(shop: Project, text: str) -> None:
    shop.write("migrator.toml", text)
    assert "migrator.toml" in refused(shop("status"))


def test_no_settings_at_all(shop: Project) -> None:
    (shop.root / "migrator.toml").unlink()
    told = refused(shop("status"))
    assert "migrator init" in told
    assert "absent.toml" in refused(shop("status", "--config", "absent.toml"))


def test_a_variable_that_is_not_set(shop: Project) -> None:
    with_store(shop, "postgresql://app@127.0.0.1:1/shop", 'password = "${NOT_SET_ANYWHERE}"')
    assert "NOT_SET_ANYWHERE" in failed(shop("plan"))


@pytest.mark.parametrize("text", [b"", b"{}", b'{"format": 1}', b"\xff\x00", b"[1, 2", b"null"])
@leaves
def test_a_corrupt_plan(shop: Project, text: bytes) -> None:
    (shop.root / "p.json").write_bytes(text)
    for command in ("show", "apply"):
        told = refused(shop(command, "p.json"))
        assert told.startswith("refused: p.json: this is no plan of Migrator")


@leaves
def test_a_plan_with_a_value_out_of_range(shop: Project) -> None:
    shop.done("plan", "-o", "p.json")
    path = shop.root / "p.json"
    path.write_text(path.read_text().replace('"create": 3', '"create": -3'))
    assert "`$.moves[0].create`" in refused(shop("apply", "p.json"))


@leaves
def test_a_plan_of_another_environment(shop: Project) -> None:
    shop.write("mine.toml", SETTINGS.replace("dev", "prod"))
    shop.done("plan", "-o", "p.json")
    told = refused(shop("apply", "p.json", "--config", "mine.toml"))
    assert "this plan is for environment dev, not prod" in told


@leaves
def test_a_plan_of_a_newer_format(shop: Project) -> None:
    shop.done("plan", "-o", "p.json")
    path = shop.root / "p.json"
    plan = json.loads(path.read_text())
    path.write_text(json.dumps({**plan, "format": 99, "more": "of it"}))
    assert "format 99" in refused(shop("apply", "p.json"))


@leaves
@pytest.mark.parametrize(
    ("old", "new"),
    [('"create": 3', '"create": 2'), ('"oversize": "refuse"', '"oversize": "quarantine"'),
     ('"digest": "', '"digest": "0'), ('"severity": "error"', '"severity": "note"')],
)  # fmt: skip
def test_a_plan_that_was_edited(shop: Project, old: str, new: str) -> None:
    shop.done("plan", "-o", "p.json")
    path = shop.root / "p.json"
    text = path.read_text()
    # Another layout of the same JSON is the same plan.
    path.write_text(json.dumps(json.loads(text)))
    shop.done("show", "p.json")
    edited = (
        text.replace(old, new) if old in text else text.replace('"full": false', '"full": true')
    )
    assert edited != text
    path.write_text(edited)
    for command in ("show", "apply"):
        told = refused(shop(command, "p.json"))
        assert told.startswith("refused: p.json: this plan was changed after it was made")
        assert "migrator plan 0001" in told


@leaves
def test_a_stale_plan(shop: Project) -> None:
    shop.done("plan", "-o", "p.json")
    shop.change("ALTER TABLE game ADD COLUMN extra TEXT")
    told = refused(shop("apply", "p.json"))
    assert "changed since this plan was made" in told
    assert "migrator plan 0001" in told


def test_a_plan_file_that_is_not_there(shop: Project) -> None:
    assert "p.json" in refused(shop("apply", "p.json"))
    assert "plans/0002.dev.json" in refused(shop("show", "0002"))


@leaves
def test_a_target_that_can_only_be_read(shop: Project, postgresql_url: str) -> None:
    parts = urlsplit(postgresql_url)
    role = f"reader_{os.getpid()}"
    server = f"{parts.hostname}:{parts.port}{parts.path}"
    target = f'postgresql://{role}@{server}"\npassword = "reads"'
    shop.write("migrator.toml", SETTINGS.replace('embedded:///docs.db"', target))
    with psycopg.connect(postgresql_url, autocommit=True) as db:
        db.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'reads'")
        try:
            told = failed(shop("apply", "0001", "--yes"))
        finally:
            db.execute(f"DROP ROLE {role}")
    assert "docs:games" in told
    assert "permission denied" in told


def test_a_source_file_that_can_only_be_read_is_not_followed(shop: Project) -> None:
    held = (shop.root / "shop.db").read_bytes()
    refused = shop.on_a_read_only_file("shop.db", "apply", "0001", "--live", "--yes")
    told = one_line(refused, 3, "refused")
    assert "read-only  shop:game: its file or the folder of that may not be written" in told
    assert "give the user who runs migrator the right to write both, or move it at rest" in told
    assert (shop.root / "shop.db").read_bytes() == held


@leaves
def test_a_target_that_is_no_database(shop: Project) -> None:
    (shop.root / "docs.db").write_bytes(b"this is no database" * 100)
    told = failed(shop("apply", "0001", "--yes"))
    assert "docs" in told


@leaves
def test_a_full_disk(tmp_path: Path) -> None:
    """Under the target, under the control database, under a plan: the same command mends it."""
    shop = new_shop(tmp_path / "large", games=1_500)
    shop.done("plan")
    told = failed(shop.on_a_full_disk(16_000, "apply", "0001", "--yes"))
    assert told.startswith("failed: control database: ")
    assert "run the same command again" in told
    (shop.root / "plans/0001.dev.json").unlink()
    assert shop.on_a_full_disk(1_000, "plan", "-o", "p.json").code == 1
    assert not (shop.root / "p.json").exists()
    told = failed(shop.on_a_full_disk(100_000, "apply", "0001", "--yes"))
    assert told.startswith("failed: docs:games: ")
    assert "run the same command again" in told
    assert "1,500 blocks equal on both sides" in shop.done("apply", "0001", "--yes").out
    copied = [e for e in shop.done("log", "0001", "--format", "json").json if "read" in e["detail"]]
    assert copied[0]["detail"]["read"] == 1_500


@leaves
def test_a_value_that_does_not_fit(shop: Project) -> None:
    shop.change("UPDATE game SET player = id WHERE id > 1")
    shop.convert("player", "refuse")
    told = refused(shop("apply", "0001", "--yes"))
    assert told.startswith("refused: E103  player")
    assert "Game:1" in told
    nothing_in(shop.root / "docs.db")


@pytest.mark.parametrize(
    ("key", "sensitive", "told"),
    [("email", "email", "email"), ("email", "*", "email"), (["email", "n"], "n", "n")],
)
def test_a_key_that_is_sensitive(
    shop: Project, key: str | list[str], sensitive: str, told: str
) -> None:
    """Keys name blocks everywhere, so a plan would give away what is to be masked."""
    shop.change(
        "CREATE TABLE person (email TEXT NOT NULL, n INT NOT NULL, PRIMARY KEY (email, n))",
        "CREATE UNIQUE INDEX by_email ON person (email)",
        "INSERT INTO person VALUES ('ann@x', 1), ('bob@x', 2)",
    )
    games = 'tables("game", rounds=tables("round", order_by="number"))'
    shop.edit(
        "migrations/0001_games.py",
        (games, f'tables("person", key={key!r})'),
        ("    target=", f"    sensitive=[{sensitive!r}],\n    target="),
    )
    answer = shop("plan", "--full")
    assert refused(answer).startswith(f"refused: shop:person: {told} is declared sensitive")
    assert "@x" not in answer.out + answer.err


@leaves
def test_a_field_that_is_a_key_by_chance_is_masked(shop: Project) -> None:
    shop.edit("migrations/0001_games.py", ("    target=", '    sensitive=["score"],\n    target='))
    shop.change("UPDATE game SET score = 7 WHERE id = 2")  # the others have their number there
    assert "+ create    3 blocks" in shop.done("plan").out


def test_no_terminal_and_no_yes(shop: Project) -> None:
    told = usage(shop("apply", "0001"))
    assert "say it at once:  migrator apply 0001 --yes" in told
    assert "--yes" in usage(shop("apply", "0001", "--config", "mine.toml"))


@leaves
def test_finish_and_abort_do_not_guess(shop: Project) -> None:
    shop.done("apply", "0001", "--yes")
    assert "migrator finish 0001 --yes" in usage(shop("finish", "0001"))
    assert "--drop-target" in usage(shop("abort", "0001"))
    assert "roll back first" in refused(shop("abort", "0001", "--keep-target"))
    assert "cut over" in shop.done("status").out


@pytest.mark.parametrize(
    "words",
    [
        ["blan"], ["plan", "--ful"], ["plan", "a", "b"], ["apply", "0001", "--until", "midnight"],
        ["apply", "0001", "--workers", "0"], ["apply", "0001", "--workers", "many"], ["rollback"],
        ["quarantine", "throw"], ["quarantine"], ["throttle", "0001", "--rate", "nan"],
        ["reads", "0001", "--share", "0", "--stale", "inf"], ["drill", "0001", "--rate", "inf"],
        ["cutover", "0001", "--bound", "nan"], ["status", "--watch", "--every", "nan"],
        ["new"], ["plan", "--format", "xml"], ["--env"],
        ["rollback", "0001", "--carry-back", "--discard"], ["plan", "--log-level", "loud"],
    ],
)  # fmt: skip
def test_wrong_words(shop: Project, words: list[str]) -> None:
    told = usage(shop(*words))
    assert len(told.splitlines()) <= 2


def test_no_command_at_all(shop: Project) -> None:
    answer = shop()
    assert answer.code == 64
    first, *lines = answer.err.splitlines()
    assert first == "usage: no command was given"
    assert "Commands:" in lines  # the help, as it is


def test_a_revision_that_is_not_there(shop: Project) -> None:
    for command in ("plan", "apply", "show", "verify", "rollback", "stamp"):
        assert "'0009'" in refused(shop(command, "0009"))
        assert "''" in refused(shop(command, ""))
    assert "0009" in refused(shop("log", "0009"))


def test_a_revision_without_a_run(shop: Project) -> None:
    for words in (["verify", "0001"], ["rollback", "0001"], ["finish", "0001", "--yes"],
                  ["abort", "0001", "--keep-target"], ["quarantine", "list", "0001"]):  # fmt: skip
        assert "there is no run of 0001" in refused(shop(*words))


@leaves
def test_a_revision_whose_source_is_in_an_unfinished_move(shop: Project) -> None:
    shop.done("apply", "0001", "--yes")
    told = refused(shop("apply", "0002", "--yes"))
    assert "builds on 0001, which is not finished" in told


@leaves
def test_a_plan_that_can_not_be_written(shop: Project) -> None:
    shop.write("plans", "a file where the folder should be")
    told = failed(shop("plan"))
    assert "plans" in told
    for name in ("migrations", ".", "/", "plans/below/p.json"):
        assert failed(shop("plan", "-o", name))


@leaves
def test_a_plan_is_written_over_no_device(shop: Project) -> None:
    # Renaming a finished file onto it would leave a file where the pipe was.
    os.mkfifo(shop.root / "pipe")
    assert "it is no file" in failed(shop("plan", "-o", "pipe"))
    assert (shop.root / "pipe").is_fifo()


def test_new_scripts_that_make_no_sense(shop: Project) -> None:
    assert "message" in refused(shop("new", "  "))
    assert "no tables" in refused(shop("new", "x", "--from-sql", "docs", "game"))
    assert "'gone'" in refused(shop("new", "x", "--from-sql", "gone", "game"))
    assert "'gone'" in refused(shop("new", "x", "--from-sql", "shop", "gone"))
    assert "'Gone'" in refused(shop("new", "x", "--repartition", "Gone"))
    usage(shop("new", "x", "--from-sql", "shop"))


def test_init_where_it_can_not_write(shop: Project) -> None:
    shop.write("a-file", "")
    told = shop("init", "a-file/below")
    assert told.code in (1, 3, 64)
    assert "Traceback" not in told.err
