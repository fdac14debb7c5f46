"""Differences that somebody declared, with a reason."""

from __future__ import annotations

import pytest

from migrator.errors import Refused
from migrator.model.explained import explained, reasons

SPELL = explained("/Game/*/rounds[*].spell", "the old side cuts blanks")
SCORE = explained("/*/*/score", "rounded")


def test_all_places_must_be_explained() -> None:
    rules = [SPELL, SCORE]
    assert reasons(rules, "Game", ["rounds[3].spell", "score"]) == [SPELL.reason, SCORE.reason]
    assert reasons(rules, "Game", ["rounds[3].spell.a[0]"]) == [SPELL.reason]
    assert reasons(rules, "Game", ["rounds[3].spell", "rounds[3]"]) is None
    assert reasons(rules, "Player", ["score"]) == [SCORE.reason]
    assert reasons(rules, "Player", ["rounds[0].spell"]) is None
    assert reasons(rules, "Game", [""]) is None
    assert reasons(rules, "Game", ["(whole): can't be read: [["]) is None


@pytest.mark.parametrize(
    ("path", "reason", "told"),
    [
        ("/Game/*", "x", "would explain every difference"),
        ("/Game/*/*", "x", "would explain every difference"),
        ("/Game/*/**", "x", "would explain every difference"),
        ("/Game/*/score", " ", "has no reason"),
        ("score", "x", "must begin with"),
    ],
)
def test_what_is_no_rule(path: str, reason: str, told: str) -> None:
    with pytest.raises(Refused, match=told):
        explained(path, reason)
