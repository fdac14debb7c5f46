"""``migrator shadow`` beside a live move and its mirror."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
import pytest

from migrator import commands
from migrator.cli.results import results
from tests.cli.kit import Project, one_line
from tests.ending import terminated


@pytest.fixture
def live(shop: Project) -> Iterator[Project]:
    """A live move whose sides were compared, with its mirror at work."""
    shop.done("plan", "0001", "--live", "-o", "live.json")
    shop.done("apply", "live.json", "--until", "shadow_read")
    mirror = shop.start("mirror", "0001")
    yield shop
    terminated(mirror)


def test_both_sides_are_read_and_compared(live: Project) -> None:
    live.change("UPDATE game SET score = 22 WHERE id = 2")
    answer = live.done("shadow", "0001", "--format", "json")
    (found,) = msgspec.convert(answer.json, results()["shadow"])
    assert (found.keys, found.equal + found.lagging, found.mismatch) == (3, 3, 0)
    assert found.primary == "shop:game"
    told = live.done("shadow", "0001", "--sample", "2").out
    assert re.match(r"shadow reads  Game  2 keys: \d equal", told)
    assert re.search(r"mirror   docs:games  median [\d.]+ ms   p99 [\d.]+ ms\n", told)
    status = live.done("status", "0001").out
    assert re.search(r"shadow reads .* ago: 2 keys, \d equal, \d lagging, 0 differ\n", status)
    log = live.done("log", "0001").out
    assert len(re.findall(r"shadow reads  cls=Game  keys=[32]  equal=\d", log)) == 2


def test_it_goes_on_until_the_run_ends(live: Project) -> None:
    process = live.start("shadow", "0001", "--every", "0.1", "--format", "json")
    assert process.stdout is not None
    rounds = [msgspec.json.decode(next(process.stdout)) for _ in range(2)]
    assert [each[0]["keys"] for each in rounds] == [3, 3]
    terminated(process)
    assert process.returncode == 130


def test_what_was_not_copied_yet_can_not_be_compared(shop: Project) -> None:
    shop.done("plan", "0001", "--live", "-o", "live.json")
    shop.done("apply", "live.json", "--until", "dual_write")
    assert "0001 is dual write: there are no two sides" in one_line(
        shop("shadow", "0001"), 3, "refused"
    )
    shop.done("abort", "0001", "--drop-target")
    shop.done("apply", "0001", "--yes")
    told = one_line(shop("shadow", "0001"), 3, "refused")
    assert "migrator verify 0001" in told


def test_a_difference_ends_with_4_and_names_the_key(
    shop: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.done("plan", "0001", "--live", "-o", "live.json")
    shop.done("apply", "live.json", "--until", "shadow_read")
    shop.change("UPDATE game SET score = 22 WHERE id = 2")
    # As if a mirror had said that it holds this, and did not.
    monkeypatch.setattr("migrator.commands.shadowing.settler", lambda *_: lambda: None)
    answer = shop("shadow", "0001")
    assert answer.code == 4
    assert "2 equal, 1 differ" in answer.out
    assert "  Game:2  differs\n      score: 22 (int32) / 2 (int32)\n" in answer.out
    with commands.Project(shop.root / "migrator.toml") as project:
        (stands,) = commands.status(project)
    assert stands.live is not None
    assert stands.live.shadow is not None
    assert (stands.live.shadow.keys, stands.live.shadow.mismatch) == (3, 1)
    known = '\n[[env.dev.shadow.explained]]\npath = "/Game/*/score"\nreason = "it is known"\n'
    shop.write("migrator.toml", (shop.root / "migrator.toml").read_text() + known)
    shop.done("shadow", "0001")
    assert "3 keys, 2 equal, 0 lagging, 0 differ, 1 explained\n" in shop.done("status", "0001").out
