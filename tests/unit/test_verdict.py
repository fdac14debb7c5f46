"""What a control database and two stores say together of who is the primary (R15)."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from migrator.model.epoch import Epoch, differs, overtakes
from migrator.model.verdict import Known, Noted, State, Verdict, judge

EPOCH = Epoch(
    run="r", env="e", revision="0001", fingerprint="f", number=2, primary="target", attempt=3,
    by="b",
)  # fmt: skip
KNOWN = Known("r", 2, "target", 3, "")


def said(**changes: object) -> Epoch:
    return msgspec.structs.replace(EPOCH, **changes)


def judged(
    known: Known | None, source: Epoch | None, target: Epoch | None, *, expected: bool = True
) -> Verdict:
    notes = [Noted("source", "old:games", source), Noted("target", "new:games", target)]
    return judge(known, notes, expected=expected, ended={"over"})


FORMER = said(number=1, primary="source")


@pytest.mark.parametrize(
    ("known", "source", "target", "state"),
    [
        (KNOWN, EPOCH, EPOCH, State.AGREED),
        (KNOWN, said(attempt=1), said(attempt=2), State.AGREED),  # one may not have been told yet
        (None, None, None, State.AGREED),
        (replace(KNOWN, fence="raised"), EPOCH, EPOCH, State.SWAP),
        (replace(KNOWN, fence="flipped"), FORMER, FORMER, State.SWAP),
        (replace(KNOWN, fence="flipped"), FORMER, EPOCH, State.SWAP),
        (replace(KNOWN, fence="flipped"), FORMER, said(attempt=4), State.DIVIDED),
        (replace(KNOWN, fence="marked"), FORMER, EPOCH, State.DIVIDED),
        (replace(KNOWN, fence="marked"), EPOCH, FORMER, State.UNCLEAR),
        (replace(KNOWN, number=3, fence="marked", attempt=5), EPOCH, EPOCH, State.DIVIDED),
        (replace(KNOWN, number=3, attempt=5), EPOCH, EPOCH, State.UNCLEAR),
        (replace(KNOWN, fence="raised"), EPOCH, said(attempt=4), State.DIVIDED),
        (KNOWN, None, EPOCH, State.DIVIDED),
        (KNOWN, EPOCH, None, State.UNCLEAR),
        (KNOWN, EPOCH, said(number=3, primary="source"), State.UNCLEAR),
        (KNOWN, said(number=3, primary="source"), EPOCH, State.DIVIDED),
        (KNOWN, said(primary="source"), EPOCH, State.UNCLEAR),
        (None, EPOCH, EPOCH, State.DIVIDED),
        (None, FORMER, EPOCH, State.DIVIDED),
        (None, EPOCH, None, State.UNCLEAR),
        (None, None, said(run="over"), State.LEFT),
        (KNOWN, EPOCH, said(run="over"), State.LEFT),
        (KNOWN, EPOCH, said(run="other"), State.STRANGER),
        (None, said(run="over"), said(run="other"), State.STRANGER),
    ],
)
def test_the_later_reign_decides_where_its_own_store_says_so(
    known: Known | None, source: Epoch | None, target: Epoch | None, state: State
) -> None:
    verdict = judged(known, source, target)
    assert verdict.state is state
    assert bool(verdict.why) is (state is not State.AGREED)
    assert bool(verdict.primary) is (state is State.DIVIDED)


def test_a_control_database_before_its_stores_were_told_expects_nothing_of_them() -> None:
    new = Known("r", 1, "source", 0, "")
    assert judged(new, None, None, expected=False).state is State.AGREED
    assert judged(new, said(number=1, primary="source", attempt=0), None, expected=False) == (
        Verdict(State.AGREED)
    )
    assert judged(new, None, None).state is State.UNCLEAR
    assert judged(new, EPOCH, None, expected=False).state is State.UNCLEAR


@pytest.mark.parametrize(
    ("known", "source", "target", "after"),
    [
        (KNOWN, None, EPOCH, ("target", 3, 5)),
        (KNOWN, said(number=4, primary="source"), EPOCH, ("source", 5, 5)),
        (replace(KNOWN, attempt=9), None, EPOCH, ("target", 3, 11)),
        (None, FORMER, said(attempt=7), ("target", 3, 9)),
        # It was flipped, and overtaken before any store was told, or when one was.
        (replace(KNOWN, fence="flipped", attempt=2), FORMER, FORMER, ("source", 3, 5)),
        (replace(KNOWN, fence="flipped", attempt=2), FORMER, said(attempt=2), ("source", 3, 5)),
        (replace(KNOWN, fence="flipped", attempt=2), said(attempt=2), FORMER, ("", 3, 5)),
        (replace(KNOWN, fence="flipped", attempt=2), FORMER, EPOCH, ("target", 3, 5)),
        # It was flipped, and the stores were not told: the one of the new primary says so much.
        (replace(KNOWN, fence="flipped"), None, FORMER, ("target", 3, 5)),
        (replace(KNOWN, fence="flipped"), said(number=3), EPOCH, ("", 4, 5)),
    ],
)  # fmt: skip
def test_the_next_reign_is_later_than_any_that_may_have_begun(
    known: Known | None,
    source: Epoch | None,
    target: Epoch | None,
    after: tuple[str, int, int],
) -> None:
    verdict = judged(known, source, target)
    assert (verdict.primary, verdict.number, verdict.attempt) == after


def test_nobody_writes_by_what_a_store_knows_to_be_of_the_past() -> None:
    assert not overtakes(EPOCH, "r", 2, "target")
    assert not overtakes(EPOCH, "r", 3, "source")
    assert overtakes(EPOCH, "other", 9, "target")
    assert overtakes(EPOCH, "r", 1, "source")
    assert overtakes(EPOCH, "r", 2, "source")


def test_an_owner_goes_by_what_both_stores_agree_with() -> None:
    def why(held: Epoch | None, number: int = 2, attempt: int = 3, *, flipped: bool = False) -> str:
        return differs(held, "r", number, "target", attempt, flipped=flipped)

    assert not why(EPOCH)
    assert not why(said(attempt=2))
    assert "is gone" in why(None)
    assert "swap 3 was begun there" in why(EPOCH, attempt=2)
    assert not why(FORMER, flipped=True)
    assert "swap 3 was begun there" in why(FORMER, attempt=2, flipped=True)
    assert "left behind" in why(FORMER)
    assert "left behind" in why(FORMER, number=3, flipped=True)
