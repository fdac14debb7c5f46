"""The verdict of a drill, and its figures."""

from __future__ import annotations

import pytest

from migrator.drill.history import Act, Denied, Fault, Known, State, Told, Tried
from migrator.drill.report import Count, count, reasons, throughput
from migrator.engine.verify import Mismatched, Verification

ENOUGH = {"put": Count(acknowledged=5, refused=0, unknown=3, wanted=5)}
EQUAL = [Verification(cls="Game", source="a:b", target="c:d", equal=9)]


def known(*calls: tuple[float, Act, bool]) -> Known:
    found = Known()
    entries = [
        entry
        for number, (at, act, done) in enumerate(calls)
        for entry in (
            Tried(number, at, act, "Game", "1", State("1")),
            Told(number, at) if done else Denied(number, at, "no"),
        )
    ]
    found.take(entries)
    return found


def test_nothing_speaks_against_a_good_drill() -> None:
    assert reasons(ENOUGH, [], EQUAL, 0, []) == []


def unequal() -> Verification:
    told = [Mismatched(key="Game:7", what="differs", paths=[])]
    return Verification(cls="Game", source="a:b", target="c:d", differ=1, told=told)


@pytest.mark.parametrize(
    ("counts", "faults", "verified", "left", "problems", "told"),
    [
        (ENOUGH, [], EQUAL, 0, ["it fell over"], "it fell over"),
        (ENOUGH, ["missing"], EQUAL, 0, [], "acknowledged writes are missing: 1 times"),
        (ENOUGH, ["twice"], EQUAL, 0, [], "acknowledged writes are there twice"),
        (ENOUGH, ["invented"], EQUAL, 0, [], "keys hold what nobody wrote"),
        (ENOUGH, ["differs"], EQUAL, 0, [], "keys hold other content"),
        (ENOUGH, ["misread"], EQUAL, 0, [], "reads did not show"),
        (ENOUGH, [], [unequal()], 0, [], "both sides differ on 1 blocks, for example Game:7"),
        (ENOUGH, [], EQUAL, 2, [], "2 keys of the drill could not be removed"),
        (
            {"put": Count(acknowledged=4, refused=0, unknown=9, wanted=5)},
            [], EQUAL, 0, [], "only 4 of put were acknowledged",
        ),
        (
            {"update": Count(acknowledged=9, refused=2, unknown=0, wanted=5, target_refused=2)},
            [], EQUAL, 0, [], "no update was carried out while the target was the primary",
        ),
    ],
)  # fmt: skip
def test_each_thing_that_is_wrong_is_a_reason(
    counts: dict[str, Count], faults: list[str], verified: list[Verification], left: int,
    problems: list[str], told: str,
) -> None:  # fmt: skip
    found = [Fault(cls="Game", key="1", side="mirror", what=what, text="") for what in faults]
    (reason,) = reasons(counts, found, verified, left, problems)
    assert told in reason


def test_calls_are_counted_by_who_was_the_primary() -> None:
    found = count(
        known((1.0, Act.PUT, True), (5.0, Act.PUT, True), (6.0, Act.PUT, False),
              (9.0, Act.GET, True)),
        {Act.PUT: 1}, [(4.0, 7.0)],
    )  # fmt: skip
    assert found == {
        "put": Count(acknowledged=2, refused=1, unknown=0, wanted=1, target_acknowledged=1,
                     target_refused=1),
    }  # fmt: skip


def test_throughput_counts_each_call_once() -> None:
    calls = known(*((100 + at, Act.PUT, True) for at in (0.0, 0.4, 0.5, 1.9)))
    assert throughput(calls, 100.0, 1.9, 0.5) == [2, 1, 0, 1]
