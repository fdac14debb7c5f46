"""Differences between the sides of a move that somebody knows of, each with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from migrator.errors import Refused
from migrator.model.path import parse_path
from migrator.model.rules import Any_, PatternStep, Rule, lies_below, parse_rule


@dataclass(frozen=True)
class Explained:
    """What lies at or below a rule's pattern may differ, for a reason."""

    rule: Rule
    reason: str

    def covers(self, cls: str, path: str) -> bool:
        """Whether a difference at an access path of a class is explained."""
        if not self.rule.applies_to(cls):
            return False
        try:
            steps = parse_path(path)
        except ValueError:
            return False  # a key, or a block that can't be read: no path of an aggregate
        general: list[PatternStep] = [Any_.ELEMENT if type(s) is int else s for s in steps]
        return bool(steps) and lies_below(self.rule.steps, general)


def explained(path: str, reason: str) -> Explained:
    """A declared rule such as ``/Game/*/rounds[*].spell``. Raises Refused for one that is none."""
    rule = parse_rule(path)
    if not rule.steps or rule.steps[-1] is Any_.DEEP or rule.steps == (Any_.FIELD,):
        raise Refused(
            f"rule {path!r} would explain every difference",
            hint="name the place that differs, such as /Game/*/rounds[*].spell",
        )
    if not reason.strip():
        raise Refused(f"rule {path!r} has no reason", hint="say why the sides differ there")
    return Explained(rule, reason)


def reasons(rules: Sequence[Explained], cls: str, paths: Sequence[str]) -> list[str] | None:
    """Why the sides differ at each of these paths; None where that is not known of all."""
    found: list[str] = []
    for path in paths:
        reason = next((r.reason for r in rules if r.covers(cls, path)), None)
        if reason is None:
            return None
        found.append(reason)
    return found
