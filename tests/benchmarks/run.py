"""Measures and prints: ``python -m tests.benchmarks.run --help``."""

from __future__ import annotations

import argparse
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from migrator import commands
from migrator.model.phase import Phase
from migrator.model.plan import Plan
from tests.benchmarks import hand, machine, memory
from tests.benchmarks.project import PAIRS, REVISION, Bench

# A range of the source that is long enough to tell batch sizes apart.
SWEPT = 5_000
BATCHES = (100, 250, 500, 1000, 2000)


@dataclass(frozen=True)
class Took:
    """Seconds on the clock, and of this process's processor time."""

    wall: float
    cpu: float


def timed(do: Callable[[], object]) -> Took:
    """How long something takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    do()
    return Took(time.perf_counter() - wall, time.process_time() - cpu)


def best(runs: Sequence[Took]) -> Took:
    """The least of each: what disturbs a run only ever makes it slower."""
    return Took(min(run.wall for run in runs), min(run.cpu for run in runs))


class Measured:
    """One pair: the loop by hand and ours in turn, on the same source."""

    def __init__(self, bench: Bench, blocks: int, workers: int) -> None:
        self.bench, self.blocks, self.workers = bench, blocks, workers
        self.digests: set[str] = set()

    def by_hand(self, batch: int, blocks: int) -> Took:
        pair, root = self.bench.pair, self.bench.root
        self.bench.reset()
        return timed(lambda: hand.copy(pair, root, blocks, batch, self.workers))

    def sweep(self) -> int:
        """The batch size that is best for the loop by hand."""
        some = min(self.blocks, SWEPT)
        took = {batch: best([self.by_hand(batch, some) for _ in "ab"]).wall for batch in BATCHES}
        print(f"   by hand, blocks/s by size of batch, {some:,} blocks: ", end="")
        print(", ".join(f"{b}: {some / s:,.0f}" for b, s in took.items()), flush=True)
        return min(took, key=took.__getitem__)

    def plan(self) -> tuple[Plan, Took]:
        self.bench.reset()
        made: list[Plan] = []
        with self.bench.open() as project:
            took = timed(
                lambda: made.append(
                    commands.plan(project, REVISION, full=True, workers=self.workers)
                )
            )
        return made[0], took

    def ours(self, plan: Plan) -> tuple[Took, Took]:
        """Backfill and verification."""
        self.bench.reset()
        terms = commands.Terms(workers=self.workers)
        with self.bench.open() as project:
            copied = timed(
                lambda: commands.apply(project, plan, until=Phase.BACKFILLED, terms=terms)
            )
            verified = timed(
                lambda: commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)
            )
        self.digests.add(hand.digest(self.bench.pair, self.bench.root, by_hand=False))
        return copied, verified


def measure(
    name: str, blocks: int, workers: int, repeat: int, batch: int | None
) -> dict[str, object]:
    """One row of the table. Raises RuntimeError where the two loops gave other bytes."""
    with tempfile.TemporaryDirectory(prefix="migrator-bench-") as folder:
        bench = Bench(PAIRS[name], Path(folder))
        try:
            bench.fill(blocks)
            measured = Measured(bench, blocks, workers)
            chosen = batch or measured.sweep()
            plan, planned = measured.plan()
            theirs, copied, verified = [], [], []
            for _ in range(repeat):
                theirs.append(measured.by_hand(chosen, blocks))
                measured.digests.add(hand.digest(bench.pair, bench.root, by_hand=True))
                mine = measured.ours(plan)
                copied.append(mine[0])
                verified.append(mine[1])
        finally:
            bench.remove()
    if len(measured.digests) != 1:
        raise RuntimeError(f"{name}: both loops must write the same bytes: {measured.digests}")
    each = {"hand": theirs, "backfill": copied, "verify": verified, "plan": [planned]}
    row: dict[str, object] = {
        "pair": bench.pair.name, "blocks": blocks, "workers": workers, "batch": chosen,
        "backfill_to_hand": best(theirs).wall / best(copied).wall,
        "backfill_to_hand_cpu": best(theirs).cpu / best(copied).cpu,
        "backfill_to_hand_median": statistics.median(
            h.wall / c.wall for h, c in zip(theirs, copied, strict=True)
        ),
        "verify_to_backfill": best(copied).wall / best(verified).wall,
        "plan_to_backfill": best(copied).wall / planned.wall,
    }  # fmt: skip
    for what, runs in each.items():
        row[f"{what}_rate"] = blocks / best(runs).wall
        row[f"{what}_cpu_us"] = best(runs).cpu / blocks * 1e6
    return row


def show(row: dict[str, object]) -> None:
    """One row as text."""
    print(f"   {'':9}{'blocks/s':>10}{'CPU us/block':>14}")
    for what in ("hand", "backfill", "verify", "plan"):
        print(f"   {what:9}{row[f'{what}_rate']:10,.0f}{row[f'{what}_cpu_us']:14,.0f}")
    print(
        f"   backfill / by hand {row['backfill_to_hand']:.2f} (best), "
        f"{row['backfill_to_hand_median']:.2f} (median), {row['backfill_to_hand_cpu']:.2f} (CPU); "
        f"verify / backfill {row['verify_to_backfill']:.2f}; "
        f"plan / backfill {row['plan_to_backfill']:.2f}",
        flush=True,
    )


def start() -> float:
    """Seconds until ``migrator --help`` has ended, the best of five."""
    command = [str(Path(sys.executable).with_name("migrator")), "--help"]
    return min(
        timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)).wall
        for _ in range(5)
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.run")
    parser.add_argument("--blocks", type=int, default=10_000, help="blocks of 8 KB (%(default)s)")
    parser.add_argument("--pair", choices=[*PAIRS, "none"], action="append", help="all by default")
    parser.add_argument("--workers", type=int, action="append", help="threads; 1 and 2 by default")
    parser.add_argument("--repeat", type=int, default=3, help="times in turn (%(default)s)")
    parser.add_argument("--batch", type=int, help="of the loop by hand; else the best of several")
    parser.add_argument(
        "--memory", type=int, nargs="*", default=[5_000, 50_000], metavar="BLOCKS",
        help="sizes for resident memory, small blocks (5,000 and 50,000)",
    )  # fmt: skip
    parser.add_argument("--memory-pair", choices=PAIRS, default="embedded", help="%(default)s")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    given = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    names = [name for name in given.pair or PAIRS if name != "none"]
    sides = {side for name in names for side in (PAIRS[name].source, PAIRS[name].target)}
    where = machine.describe(sides)
    result: dict[str, object] = {"machine": where}
    for what, text in where.items():
        print(f"{what:11}{text}")
    rows = []
    for name in names:
        for workers in given.workers or (1, 2):
            print(f"\n{PAIRS[name].name}, {given.blocks:,} blocks, {workers} workers", flush=True)
            rows.append(measure(name, given.blocks, workers, given.repeat, given.batch))
            show(rows[-1])
    result["pairs"] = rows
    if given.memory:
        result["memory"] = memory.growth(given.memory, given.memory_pair)
    result["help_seconds"] = start()
    print(f"\nmigrator --help: {result['help_seconds']:.2f} s")
    if given.json:
        given.json.write_text(json.dumps(result, indent=1) + os.linesep)


if __name__ == "__main__":
    main()
