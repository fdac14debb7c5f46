"""``mirror --metrics``, asked as Prometheus asks it."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from migrator import commands
from migrator.cli.metrics import Collector
from tests.cli.kit import PATIENT, Project, one_line
from tests.ending import terminated

# By name and labels; those that all have are left out.
Samples = dict[tuple[str, str], float]


def ask(port: int) -> Samples:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for name, labels, value, *_ in family.samples:
            if name.startswith("migrator_") and name != "migrator_control_up":
                assert labels.pop("revision") == "0001"
                assert labels.pop("env") == "dev"
            found[name, ",".join(labels.values())] = value
    return found


def ask_until(port: int, enough: Callable[[Samples], bool]) -> Samples:
    until = time.monotonic() + 60
    while not enough(found := ask(port)):
        assert time.monotonic() < until, found
        time.sleep(0.05)
    return found


@contextmanager
def mirror(shop: Project) -> Iterator[int]:
    """A mirror at work that serves its figures on this port."""
    words = ("mirror", "0001", "--metrics", "0", "--log-level", "info", "--log-format", "json")
    process = shop.start(*words)
    assert process.stderr is not None
    try:
        told = (json.loads(line) for line in process.stderr)
        yield next(each["port"] for each in told if each["event"] == "metrics")
    finally:
        terminated(process)


def test_the_figures_of_a_live_move(shop: Project) -> None:
    shop.done("plan", "0001", "--live", "-o", "live.json")
    shop.done("apply", "live.json", "--until", "shadow_read")
    with mirror(shop) as port:
        shop.change("UPDATE game SET score = 22 WHERE id = 2")
        found = ask_until(port, lambda found: found["migrator_touches_total", ""] >= 1)
        assert found["migrator_reconciled_blocks_total", "change"] >= 1
        assert found["migrator_run_phase", "shadow_read"] == 1
        assert sum(n for (name, _), n in found.items() if name == "migrator_run_phase") == 1
        assert found["migrator_copied_blocks_total", ""] == 3
        assert found["migrator_swap_pause_seconds_count", "target"] == 0
        assert found["migrator_ledger_blocks", ""] == found["migrator_quarantined_blocks", ""] == 0
        assert abs(found["migrator_mirror_told_timestamp_seconds", ""] - time.time()) < 600
        assert found["migrator_mirror_lag_seconds", ""] < 60
        shop.done("shadow", "0001")
        found = ask(port)
        assert found["migrator_shadow_keys", "mismatch"] == 0
        outcomes = ("equal", "lagging", "errors")
        assert sum(found["migrator_shadow_keys", outcome] for outcome in outcomes) == 3
        shop.done("cutover", "0001", *PATIENT.split())
        found = ask_until(port, lambda found: found["migrator_run_phase", "cut_over"] == 1)
        assert found["migrator_swap_pause_seconds_count", "target"] == 1
        assert found["migrator_swap_pause_seconds_count", "source"] == 0
        (swapped,) = [
            each["detail"] for each in shop.done("log", "0001", "--format", "json").json
            if each["event"] == "swapped"
        ]  # fmt: skip
        assert found["migrator_swap_pause_seconds_sum", "target"] == swapped["pause"]


def test_without_its_control_database_that_alone_is_told(shop: Project) -> None:
    shop.done("apply", "0001", "--yes", "--until", "prepared")
    with commands.Project(shop.root / "migrator.toml") as project:
        collector = Collector(project, project.control.run("0001").id)
        assert len(list(collector.collect())) > 5
        with project.control.transaction() as c:
            c.exec_driver_sql("DROP TABLE migrator_log")
        (only,) = collector.collect()
        assert (only.name, only.samples[0].value) == ("migrator_control_up", 0)


def test_metrics_at_an_address_in_use(shop: Project) -> None:
    shop.done("plan", "0001", "--live", "-o", "live.json")
    shop.done("apply", "live.json", "--until", "prepared")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        told = one_line(shop("mirror", "0001", "--metrics", str(port)), 1, "failed")
    assert f"127.0.0.1:{port}" in told


@pytest.mark.parametrize("address", ["here", "127.0.0.1", "1:", ":65536", ":-1", "²"])
def test_metrics_at_no_address(shop: Project, address: str) -> None:
    assert shop("mirror", "0001", "--metrics", address).code == 64
