"""The running example, from an empty folder to the end, as a person would go through it."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cli.kit import SETTINGS, Project, fill_shop, new_shop


def test_from_an_empty_folder_to_the_end(tmp_path: Path) -> None:
    migrator = Project(tmp_path)

    assert "wrote migrator.toml" in migrator.done("init").out
    assert "no revision yet" in migrator.done("history").out
    fill_shop(tmp_path / "shop.db")
    migrator.write("migrator.toml", SETTINGS)
    told = migrator.done("stores").out
    assert "SQLite" in told
    assert "entries  effective; atomic: transaction; entries apart; expiry" in told
    assert "tables   not effective; atomic: transaction" in told

    made = migrator.done("new", "Games out of the shop", "--from-sql", "shop", "game")
    assert made.out.startswith("wrote migrations/0001_games_out_of_the_shop.py\n")
    assert "1 revision" in migrator.done("check").out

    planned = migrator.done("plan")
    assert "+ create    3 blocks" in planned.out
    assert planned.out.endswith(
        "plans/0001.dev.json    apply it with:  migrator apply plans/0001.dev.json\n"
    )
    again = migrator.done("show", "0001")
    assert again.out == planned.out

    applied = migrator.done("apply", "plans/0001.dev.json")
    assert "3 blocks equal on both sides, 0 differ" in applied.out
    assert "docs:games is the primary now" in applied.out
    assert "nothing to do" in migrator.done("apply", "0001").out
    assert "primary docs:games   mirror shop:game" in migrator.done("status").out
    assert "3 blocks equal on both sides" in migrator.done("verify").out

    assert "shop:game is the primary again" in migrator.done("rollback", "0001").out
    assert "primary shop:game   mirror docs:games" in migrator.done("status").out
    assert "docs:games is the primary now" in migrator.done("apply", "0001").out
    assert (
        "kept: shop:game, shop:round"
        in migrator.done("finish", "0001", "--keep-source", "--yes").out
    )
    assert re.search(r"Game +docs:games +since 0001", migrator.done("current").out)

    migrator.done("new", "Each round an entry", "--repartition", "Game")
    script = next((tmp_path / "migrations").glob("0002*"))
    script.write_text(script.read_text().replace('# "/Game/*/FIELD[*]"', '"/Game/*/rounds[*]"'))
    assert "0002" in migrator.done("apply", "--yes").out
    assert "dropped: docs:games" in migrator.done("finish", "0002", "--yes").out
    assert "every revision is done" in migrator.done("apply").out
    assert "0002 is done" in migrator.done("apply", "0002").out

    logged = migrator.done("log", "0002").out
    words = [line.split()[3] for line in logged.splitlines()]
    assert words[0] == "started"
    assert words[-1] == "finished"


def test_an_abort_leaves_or_drops_what_was_copied(shop: Project) -> None:
    shop.done("apply", "0001", "--yes", "--until", "backfilled")
    assert "kept: docs:games" in shop.done("abort", "0001", "--keep-target").out
    shop.done("apply", "0001", "--yes", "--until", "shadow_read")
    # What lay there before this run is not its to drop.
    assert shop("abort", "0001", "--drop-target").code == 3
    shop.done("abort", "0001", "--keep-target")


def test_a_stamped_revision_is_done(shop: Project) -> None:
    assert "0001 is noted as done" in shop.done("stamp", "0001").out
    assert [entry["done"] for entry in shop.done("history", "--format", "json").json] == [
        True,
        False,
    ]


def test_the_options_stand_before_or_after_the_command(shop: Project) -> None:
    shop.write("other.toml", SETTINGS.replace("dev", "other"))
    before = shop.done("--config", "other.toml", "--env", "other", "--format", "json", "status")
    after = shop.done("status", "--config", "other.toml", "--env", "other", "--format", "json")
    assert before.json == after.json == []
    planned = shop.done("plan", "0001", "--config", "other.toml", "--env", "other")
    assert planned.out.endswith(
        "apply it with:  migrator --config other.toml --env other apply plans/0001.other.json\n"
    )


def test_init_overwrites_nothing(tmp_path: Path) -> None:
    migrator = Project(tmp_path)
    migrator.done("init")
    before = (tmp_path / "migrator.toml").read_text()
    migrator.write("migrator.toml", before + "# mine\n")
    answer = migrator("init")
    assert answer.code == 3
    assert "there already" in answer.err
    assert (tmp_path / "migrator.toml").read_text() == before + "# mine\n"


def test_a_reader_that_goes_away_ends_the_printing_and_not_the_work(tmp_path: Path) -> None:
    shop = new_shop(tmp_path, games=20)
    process = shop.start("apply", "0001", "--yes")
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert "cut over" in shop.done("status").out
