"""``status --watch``, beside a live move that goes on."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from migrator import commands
from migrator.commands import Watched
from migrator.state.gateways import Gateways
from tests.cli.kit import PATIENT, Project
from tests.cli.test_terminal import Terminal
from tests.ending import joined
from tests.gateway.kit import until


@pytest.fixture
def live(shop: Project) -> Project:
    """A live move whose sides were compared."""
    shop.done("plan", "0001", "--live", "-o", "live.json")
    shop.done("apply", "live.json", "--until", "shadow_read")
    return shop


def test_status_tells_whose_lease_a_swap_waits_for(live: Project) -> None:
    with commands.Project(live.root / "migrator.toml", "dev") as project:
        gateways = Gateways(project.control)
        gateways.enter("slow", "Game", 60.0)
        swap = threading.Thread(
            target=commands.cutover,
            args=[project, "0001"],
            kwargs={"swap": commands.SwapTerms(bound=60, lag=60)},
        )
        swap.start()
        try:
            until(lambda: "armed" in (told := live.done("status", "0001").out) and "slow" in told)
            told = live.done("status", "0001").out
            assert "waits for gateway slow to see that the sides are to be swapped" in told
            assert re.search(r"swapped, \d+ s more at most", told)
        finally:
            gateways.leave(["slow"])
            joined(swap)
    assert "slow" not in live.done("status", "0001").out


def looks(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def test_a_watch_follows_a_run_to_its_end(live: Project) -> None:
    process = live.start("status", "0001", "--watch", "--every", "0.1", "--format", "json")
    seen = looks(process)
    first = next(seen)
    assert first.keys() == set(Watched.__struct_fields__)
    live.done("cutover", "0001", *PATIENT.split())
    phases = [first["status"]["phase"]]
    while phases[-1] != "cut_over":
        phases.append(next(seen)["status"]["phase"])
    live.done("finish", "0001", "--yes", "--keep-source")
    phases += [each["status"]["phase"] for each in seen]
    assert process.wait(60) == 0
    assert list(dict.fromkeys(phases)) == ["shadow_read", "cut_over", "finished"]
    assert phases.count("finished") == 1


def test_a_watch_ends_with_its_reader(live: Project) -> None:
    for words in ([], ["--format", "json"]):
        process = live.start("status", "--watch", "--every", "0.1", *words)
        assert process.stdout is not None
        assert "shadow" in process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0


def test_a_watch_on_a_terminal_stays_until_ctrl_c(live: Project) -> None:
    terminal = Terminal(live, "status", "--watch", "--every", "0.1")
    terminal.wait_for("primary shop:game   mirror docs:games")
    terminal.wait_for("\x1b[1A")  # it was drawn once more in its place
    terminal.interrupt()
    assert terminal.end() == 130
    assert "stopped looking; the runs go on" in terminal.text
    assert terminal.text.rindex("\x1b[?25h") > terminal.text.rindex("\x1b[?25l")


def test_one_revision_alone(live: Project) -> None:
    found = [
        live.done(*words, "--format", "json").json for words in (["status", "0001"], ["status"])
    ]
    for (run,) in found:
        assert run["live"].pop("silent") >= 0  # it grows from one look to the next
    assert found[0] == found[1]
    assert live.done("status", "0001").out.startswith("0001  Game   shadow read")
    assert "there is no run of 0002" in live("status", "0002").err
    live.done("abort", "0001", "--drop-target")
    assert "0001  Game   aborted" in live.done("status", "0001").out
    assert live.done("status", "--watch").out.startswith("no run is under way")
