"""What is told of a finish that was killed in the middle."""

from __future__ import annotations

import pytest

from migrator.commands import live
from migrator.engine import points
from tests.cli.kit import PATIENT, Project


@pytest.mark.parametrize("words", [[], ["--live"]])
def test_a_finish_that_has_begun_leaves_no_way_back(
    shop: Project, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    early: list[tuple[int, str]] = []

    def asks(point: str) -> None:
        if point == "swap.fenced":
            told = shop("finish", "0001")
            early.append((told.code, told.err))

    # As long as a cut-over is not done nobody is asked whether the source may go.
    monkeypatch.setattr(live, "GONE", 1.0)
    monkeypatch.setattr(points, "hook", asks)
    shop.done("apply", "0001", "--yes", *words, *PATIENT.split())
    assert [(code, "not cut over" in err) for code, err in early] == [(3, True)] * len(words)

    def kill(point: str) -> None:
        if point == "finish.dropped":
            raise KeyboardInterrupt

    monkeypatch.setattr(points, "hook", kill)
    assert shop("finish", "0001", "--yes").code == 130
    monkeypatch.setattr(points, "hook", None)
    told = shop.done("status", "0001").out
    assert "a finish has begun to drop the source: there is no way back" in told
    assert "next:  migrator finish 0001\n" in told
    assert "rollback" not in told
    for other in (["abort", "0001", "--keep-target"], ["rollback", "0001"]):
        refused = shop(*other)
        assert refused.code == 3
        assert "there is no way back" in refused.err
        assert "roll back first" not in refused.err
    shop.done("finish", "0001", "--yes")
    assert "no way back" not in shop.done("status", "0001").out
