"""The examples of the NoAM literature are golden tests."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from migrator.model.canonical import encode
from migrator.model.rules import assemble, representation
from migrator.model.value import Record, Ref, Value

_DEFAULT = Path(__file__).parents[3] / "shared"
EXAMPLES = Path(os.environ.get("MIGRATOR_SHARED", _DEFAULT)) / "data" / "noam-examples.json"
NAMES = [
    "EAO",
    "EAO, one class",
    "ETF",
    "EAV",
    "games + ETF",
    "games + EAO",
    "ROUNDS",
    "ROUNDS + ETF",
]


@pytest.fixture(scope="module")
def examples() -> dict[str, object]:
    if not EXAMPLES.exists():
        pytest.skip(f"no {EXAMPLES.name} there (say where by MIGRATOR_SHARED)")
    return json.loads(EXAMPLES.read_text())  # type: ignore[no-any-return]


def with_references(value: Value) -> Value:
    """The file writes references as text; in the model they are a kind of their own."""
    if type(value) is dict:
        return {name: with_references(item) for name, item in value.items()}
    if type(value) is list:
        return [with_references(item) for item in value]
    if type(value) is str and value.startswith(("Game:", "Player:")):
        return Ref(*value.split(":", 1))
    return value


@pytest.mark.parametrize("name", NAMES)
def test_the_rules_of_the_literature_give_its_entries(
    examples: dict[str, list[Record]], name: str
) -> None:
    (case,) = [case for case in examples["representations"] if case["name"] == name]
    cls, id_ = str(case["class"]), str(case["id"])
    aggregate = with_references(examples["aggregates"][cls][id_])  # type: ignore[call-overload]
    rules = representation(cls, case["rules"])  # type: ignore[arg-type]
    entries = rules.partition(aggregate)  # type: ignore[arg-type]
    assert encode(dict(entries)) == encode(with_references(case["entries"]))
    assert encode(assemble(entries)) == encode(aggregate)


def test_every_example_is_tested(examples: dict[str, list[Record]]) -> None:
    assert [case["name"] for case in examples["representations"]] == NAMES
