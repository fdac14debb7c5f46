"""The real engine in ten thousand drawn schedules, with all that may go wrong; a failure is made
small before it is told.

Others than these: MIGRATOR_SEED=4711 for one, MIGRATOR_SCHEDULES=100000 for more.
"""

from __future__ import annotations

import os
from itertools import islice

import pytest

from tests.protocol.draws import STEP, Decisions, shrink
from tests.protocol.lives import lived, smallest, told
from tests.protocol.plants import PLANTS

SHARD = 250
SCHEDULES = int(os.environ.get("MIGRATOR_SCHEDULES", "10000"))
# Under a fault planted for a rule one schedule in some hundreds loses a write.
LOOKED_AT = 2_000

if "MIGRATOR_SEED" in os.environ:
    SHARDS = [range(int(os.environ["MIGRATOR_SEED"]), int(os.environ["MIGRATOR_SEED"]) + 1)]
else:
    SHARDS = [range(n, min(n + SHARD, SCHEDULES)) for n in range(0, SCHEDULES, SHARD)]


@pytest.mark.parametrize("seeds", SHARDS, ids=lambda seeds: f"from {seeds[0]} on")
def test_no_acknowledged_write_is_lost_in_any_schedule(seeds: range) -> None:
    for seed in seeds:
        life = lived(seed)
        if life.wrong is not None:
            pytest.fail(told(seed, life, smallest(seed, life.decisions)))


@pytest.mark.parametrize("rule", PLANTS)
def test_a_planted_fault_is_found_and_shrinks_to_a_small_schedule(rule: str) -> None:
    plant, _ = PLANTS[rule]
    seed = next(seed for seed in range(LOOKED_AT) if lived(seed, plant=plant).wrong)
    first = lived(seed, plant=plant)

    small = smallest(seed, first.decisions, plant)

    assert isinstance(small.wrong, AssertionError)
    assert len(small.decisions) <= 2 * len(first.decisions) // 3
    assert lived(seed, small.decisions, plant)[:3] == small[:3]
    assert lived(seed, small.decisions).wrong is None  # it is the fault, and not the schedule


def test_the_smallest_schedule_is_of_few_decisions() -> None:
    plant, _ = PLANTS["cutover.marker"]
    wrong = (seed for seed in range(LOOKED_AT) if lived(seed, plant=plant).wrong)
    seeds = list(islice(wrong, 3))

    small = [smallest(seed, lived(seed, plant=plant).decisions, plant) for seed in seeds]

    # A write, and the swap that loses it: what else was drawn has nothing to do with it.
    assert min(len(life.decisions) for life in small) <= 4


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 7])
def test_a_seed_gives_one_tale_on_either_control_database(seed: int) -> None:
    in_memory = lived(seed)

    assert lived(seed)[:3] == in_memory[:3]
    assert lived(seed, in_memory.decisions)[:3] == in_memory[:3]
    assert lived(seed, in_memory=False)[:3] == in_memory[:3]


def test_shrinking_leaves_what_the_failure_needs() -> None:
    drawn: Decisions = {5 * STEP: 1, 9 * STEP: 3, 40 * STEP + 2: 1, 41 * STEP: 1, 77 * STEP: 2}

    def fails(given: Decisions) -> Decisions | None:
        return given if 2 in given.values() and len(given) > 1 else None

    # Two decisions, of which one is a 2, as early and as mild as can be.
    small = shrink(drawn, fails)

    assert sorted(small.values()) == [1, 2]
    assert max(small) // STEP <= 1


def test_shrinking_ends_where_nothing_smaller_fails() -> None:
    tried: list[Decisions] = []

    def fails(given: Decisions) -> None:
        tried.append(given)

    assert shrink({STEP: 1, 2 * STEP: 1}, fails) == {STEP: 1, 2 * STEP: 1}
    assert {} in tried
