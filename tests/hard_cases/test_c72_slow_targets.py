"""C72: a slow target loses and doubles nothing, and no cursor is asked to live for ever."""

from __future__ import annotations

import time

import pytest

from migrator.engine import points
from tests.hard_cases.bench import Bench, apply, plan
from tests.system import kit


def test_a_slow_target_loses_and_doubles_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = kit.fresh("c72"), kit.fresh("c72")
    bench.docs[one].insert_many([{"_id": n * 2} for n in range(300)])
    shop = bench.shop((f"At('docs', {one!r})", f"At('pg', {two!r}, layout='entries')"))
    made = plan(shop, page=50)
    opened: list[int] = []

    def slow(point: str) -> None:
        if point == "backfill.written":
            status = bench.docs.client.admin.command("serverStatus")
            cursors = status.get("metrics", {}).get("cursor", {}).get("open", {})
            opened.append(int(cursors.get("noTimeout", 0)))
            time.sleep(0.1)

    monkeypatch.setattr(points, "hook", slow)
    (found,) = apply(shop, made)
    assert found.equal == 300
    assert len(opened) >= 6
    assert set(opened) == {0}
