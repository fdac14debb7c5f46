"""Every bounded world, whole: with all rules nothing is lost, and without any one a write is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.protocol.cases import MISSED_IN, WORLDS, machine, told, without
from tests.protocol.checker import explore
from tests.protocol.cutover import Cutover
from tests.protocol.mirror import Mirror
from tests.protocol.writing import Brackets, Stamps

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "protocol.md"


@pytest.mark.parametrize("world", WORLDS)
def test_with_all_rules_nothing_is_lost_and_all_comes_to_rest(world: str) -> None:
    found = explore(machine(world))

    assert found.broken is None, str(found)
    assert found.quiet > 1


@pytest.mark.parametrize("rule", MISSED_IN)
def test_without_a_rule_a_write_is_lost_as_the_page_tells(rule: str) -> None:
    found = without(rule)

    assert found.broken is not None
    assert "dead end" not in found.broken, str(found)
    assert f"```text\n{told(found.trace)}\n```" in _section(rule), told(found.trace)


def test_every_rule_of_the_machines_is_taken_away_once() -> None:
    assert [*MISSED_IN] == [
        *Mirror.RULES, *Cutover.RULES, *Brackets.RULES, *Stamps.RULES
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("page", "heading"),
    [
        (PAGE, "What real servers showed"),
        (PAGE.with_name("hard-cases.md"), "Faults of a live move"),
    ],
    ids=["protocol", "faults"],
)
def test_the_tests_that_a_page_names_are_there(page: Path, heading: str) -> None:
    _, _, table = page.read_text().partition(f"\n## {heading}")
    named = set(re.findall(r"`(test_\w+)`", table))
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "migrator" / "testing").rglob("*.py")]
    there = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text())}

    assert len(named) > 20
    assert named <= there


def _section(rule: str) -> str:
    """The part of the page under a rule's name."""
    _, _, after = PAGE.read_text().partition(f"\n#### {rule}\n")
    return after.partition("\n#### ")[0]
