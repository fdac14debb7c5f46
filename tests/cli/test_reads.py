"""``migrator reads`` beside a live move and its mirror."""

from __future__ import annotations

import re
import time

import msgspec
import pytest

from migrator import commands
from migrator.cli.metrics import Collector
from migrator.cli.results import results
from migrator.gateway import Gateway, Terms
from tests.cli.kit import Project, one_line
from tests.ending import terminated


def test_a_share_is_set_shown_and_used(shop: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migrator.gateway.mirrored._LOOK", 0.1)
    shop.done("plan", "0001", "--live", "-o", "live.json")
    shop.done("apply", "live.json", "--until", "shadow_read")
    assert "may answer 0.00% of gateways' reads" in shop.done("reads", "0001").out
    mirror = shop.start("mirror", "0001")
    try:
        until = time.monotonic() + 120
        while (answer := shop("reads", "0001", "--share", "100%", "--stale", "60")).code == 5:
            assert time.monotonic() < until  # the mirror is not there yet
        told = answer.out
        assert told.endswith("may answer 100.00% of gateways' reads, no older than 60 s\n")
        assert "the mirror may answer 100.00% of gateways' reads\n" in shop.done("status").out
        terms = Terms(lease=1.0, patience=60.0)
        with Gateway.open("Game", shop.root / "migrator.toml", "dev", terms=terms) as games:
            while not games._here.mirrored._tally.counts.get("served"):
                assert games.get(1) is not None
                assert time.monotonic() < until
                time.sleep(0.01)
        answer = shop.done("reads", "0001", "--format", "json")
        found = msgspec.convert(answer.json, results()["reads"])
        assert (found.share, found.stale) == (1.0, 60.0)
        assert found.gateways.served == 1
        gateways = found.gateways
        assert gateways.reads == gateways.served + gateways.behind + gateways.written
        assert re.search(r"1 of [\d,]+ reads? answered; by the", shop.done("reads", "0001").out)
        assert re.search(r"mirror [\d.]+ ms \(p99 [\d.]+ ms\)", shop.done("status").out)
        with commands.Project(shop.root / "migrator.toml") as project:
            metrics = {
                (sample.name, sample.labels.get("outcome") or sample.labels.get("side")): sample
                for family in Collector(project, found.run).collect()
                for sample in family.samples
            }
        assert metrics["migrator_read_share", None].value == 1
        assert metrics["migrator_gateway_reads_total", "served"].value == 1
        assert metrics["migrator_gateway_read_seconds", "mirror"].value > 0
        shop.done("reads", "0001", "--share", "0")
        assert "may answer 0.00%" in shop.done("reads", "0001").out
    finally:
        terminated(mirror)


def test_what_is_no_share_and_where_there_is_none(shop: Project) -> None:
    shop.done("plan", "0001", "--live", "-o", "live.json")
    shop.done("apply", "live.json", "--until", "dual_write")
    told = one_line(shop("reads", "0001", "--share", "0.1"), 3, "refused")
    assert "0001 is dual write: the mirror answers reads in shadow read alone" in told
    assert shop("reads", "0001", "--share", "2").code == 64
    assert shop("reads", "0001", "--stale", "2").code == 64
    shop.done("abort", "0001", "--drop-target")
    shop.done("apply", "0001", "--yes")
    assert "is moved at rest" in one_line(shop("reads", "0001"), 3, "refused")
