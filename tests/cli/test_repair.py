"""repair: dry unless it is told what to do, and it asks before it does."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from migrator import commands
from migrator.commands import repairing
from migrator.state.gateways import Gateways
from tests.cli.kit import PATIENT, Project

SETTINGS = """
[env.dev]
request_life = 0.3
"""


@pytest.fixture
def lost(shop: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A live move whose control database was lost after its cut-over."""
    monkeypatch.setattr(repairing, "LEASE", 0.1)
    settings = shop.root / "migrator.toml"
    settings.write_text(settings.read_text() + SETTINGS)
    shop.done("plan", "0001", "--live")
    shop.done("apply", "plans/0001.dev.json", "--until", "shadow_read")
    assert shop.done("repair", "0001").out.endswith("there is nothing to repair\n")
    shop.done("cutover", "0001", *PATIENT.split())
    with commands.Project(settings) as project:
        file = project.control.engine.url.database
    assert file is not None
    Path(file).unlink()
    return shop


def test_repair_tells_who_says_what_and_changes_nothing(lost: Project) -> None:
    for _ in range(2):
        found = lost("repair", "0001")
        assert found.code == 5
        assert "0001  divided" in found.out
        assert "control database: no run is under way" in found.out
        assert "source  shop:game   epoch 2  primary target  swap 1" in found.out
        assert "target  docs:games  epoch 2  primary target  swap 1" in found.out
        assert "migrator repair 0001 --rebuild\n" in found.out
    told = lost("repair", "0001", "--format", "json").json
    assert (told["state"], told["control"]) == ("divided", None)
    assert [choice["command"] for choice in told["choices"]] == ["migrator repair 0001 --rebuild"]
    assert {side["epoch"]["number"] for side in told["sides"]} == {2}


def test_repair_asks_no_other_stores_than_those_of_the_run(shop: Project) -> None:
    shop.done("plan", "0001", "--live")
    shop.done("apply", "plans/0001.dev.json", "--until", "prepared")
    settings = shop.root / "migrator.toml"
    right = settings.read_text()
    settings.write_text(right.replace("docs.db", "other.db"))
    refused = shop("repair", "0001")
    assert refused.code == 3
    assert "where its stores lie, is no longer what run" in refused.err
    settings.write_text(right)
    assert shop.done("repair", "0001").out.endswith("there is nothing to repair\n")


def test_repair_asks_before_it_acts(lost: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = lost("repair", "0001", "--rebuild")
    assert refused.code == 64
    assert "migrator repair 0001 --rebuild --yes" in refused.err
    assert lost("repair", "0001", "--forget", "--yes").code == 3
    assert lost("repair", "0001", "--primary", "source").code == 64
    with commands.Project(lost.root / "migrator.toml") as project:
        leases = Gateways(project.control)
        leases.enter("away", "Game", 0.8, away=True)
        leases.renew_away("away", 0.1)  # of which it may not have heard
    waited: list[float] = []
    log = SimpleNamespace(warning=lambda _, seconds: waited.append(seconds))
    monkeypatch.setattr(repairing, "log", log)
    done = lost("repair", "0001", "--rebuild", "--yes")
    assert done.code == 0, done.err
    assert waited[0] > 0.8
    assert "epoch 3  primary target" in done.out
    assert done.out.endswith("there is nothing to repair\n")
    assert lost.done("status", "0001", "--format", "json").json[0]["epoch"] == 3
    told = [each["event"] for each in lost.done("log", "0001", "--format", "json").json]
    assert "mended" in told
    assert "swapped" not in told  # nobody's writes were stopped for it
    lost.done("rollback", "0001", *PATIENT.split())
