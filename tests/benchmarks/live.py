"""What a live move costs an application: ``python -m tests.benchmarks.live --help``.

One move for each feed (``--feed``), under writers that follow the primary by a hook, on Cassandra
by the gateway. The pause of a swap is taken at the writers: the longest time that one of them
waited from one acknowledged write to its next. With ``--backfill`` it is taken instead how much
the application writes while what was there before is copied.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import msgspec
import structlog

from migrator import commands
from migrator.commands import SwapTerms
from migrator.model.phase import Phase
from tests.benchmarks import machine
from tests.benchmarks.pairs import ANYWHERE, PAIRS, Pair
from tests.benchmarks.targets import TARGETS
from tests.benchmarks.told import told
from tests.system.application import Application, Hooked, mirroring

_SWAPS = {"cut-over": commands.cutover, "rollback": commands.rollback}


class Live:
    """A move that is carried as far as asked for."""

    def __init__(self, pair: Pair, games: int) -> None:
        self.pair, self.side = pair, pair.source()
        if games:
            self.fill(games)
        self.application = Application(
            {"source": pair.source, "target": pair.target}, words=pair.words, pace=0.01
        )

    def fill(self, games: int) -> None:
        for number in range(games):
            self.side.put(f"old-{number}", number, ["a", "b"])

    def begin(self, phase: Phase) -> None:
        with self.pair.shop.open() as project:
            run = commands.unfinished(project, "0001")
            plan = commands.frozen_plan(run) if run else commands.plan(project, "0001", live=True)
            accept = [finding.code for finding in plan.findings]
            commands.apply(project, plan, until=phase, terms=commands.Terms(accept=accept))

    def swaps(self, times: int, terms: SwapTerms) -> None:
        """Cut over and roll back so many times, and print what it took."""
        pauses: dict[str, list[float]] = {
            "cut-over": [], "without a swap, at the target": [],
            "rollback": [], "without a swap, at the source": [],
        }  # fmt: skip
        application = self.application
        try:
            with application, self.pair.shop.open() as project:
                for _ in range(times):
                    for word, swap in _SWAPS.items():
                        application.go_on_for(0.25)
                        application.longest = 0.0
                        swap(project, "0001", swap=terms)
                        application.go_on_until_all()
                        pauses[word].append(application.longest * 1000)
                        application.longest = 0.0
                        application.go_on_for(0.4)
                        where = "without a swap, at the " + application.primary
                        pauses[where].append(application.longest * 1000)
        finally:  # also of those that were done where it is interrupted
            for word, took in pauses.items():
                if not took:  # behind a gateway nobody sees which side that is
                    continue
                middle, most = statistics.median(took), max(took)
                print(f"   {word}: longest wait of 4 writers, {len(took)} times: ", end="")
                print(f"median {middle:.0f} ms, most {most:.0f} ms", flush=True)
            self._parts()

    def _parts(self) -> None:
        """Print what Migrator says of its own part of these, from the fence to the release."""
        with self.pair.shop.open() as project:
            control = project.control
            events = control.events(control.run("0001").id, "swapped")
        for word, to in (("cut-over", "target"), ("rollback", "source")):
            found = [cast("dict[str, Any]", each["detail"]) for each in events]
            swaps = [each for each in found if each["to"] == to]
            if not swaps:
                continue
            middle = {
                part: 1000 * statistics.median(each[part] for each in swaps)
                for part in ("fence", "drain", "pause")
            }
            most = 1000 * max(each["pause"] for each in swaps)
            print(
                f"   {word}, Migrator's part of it: median {middle['pause']:.0f} ms, most "
                f"{most:.0f} ms; fenced after {middle['fence']:.0f} ms, drained after "
                f"{middle['drain']:.0f} ms", flush=True,
            )  # fmt: skip

    def _arrives(self, number: int) -> float:
        """Seconds until a write is on both sides."""
        began = time.perf_counter()
        self.side.put("lag", number, [])
        while self.pair.number("lag") != number:
            time.sleep(0.0005)
        return time.perf_counter() - began

    def lag(self, times: int) -> None:
        """How long one write takes to be on both sides."""
        took = [self._arrives(number) * 1000 for number in range(times + 1)][1:]
        print(
            f"   lag of a write, {times} times: median {statistics.median(took):.0f} ms, "
            f"most {max(took):.0f} ms", flush=True,
        )  # fmt: skip

    def burst(self, writes: int) -> None:
        """How fast keys are mirrored that were all written at once: a write behind them tells."""
        began = time.perf_counter()
        self.pair.many(writes)
        written = time.perf_counter()
        self._arrives(-1)
        took, writing = time.perf_counter() - written, written - began
        after = self._arrives(-2) * 1000
        print(
            f"   a burst of {writes:,} keys, written in {writing:.1f} s: all mirrored {took:.2f} s "
            f"after it ({writes / took:,.0f}/s); lag of the next write {after:.0f} ms", flush=True,
        )  # fmt: skip

    def by_hand(self, writes: int) -> None:
        """What the servers take for the requests of such a burst, by the drivers alone."""
        took = self.pair.by_hand(writes)
        if took is None:
            return
        parts = ", ".join(f"{word} {took[word] / writes * 1e6:,.0f} us" for word in took)
        rate = writes / sum(took.values())
        print(f"   its requests by the drivers alone: {rate:,.0f}/s ({parts} a key)", flush=True)

    def backfill(self, seconds: float) -> None:
        """What 4 writers get done before the copy, and while it goes on."""
        done, application = [], self.application

        def rate(began: float, before: int) -> float:
            return (application.done.total() - before) / (time.perf_counter() - began)

        with application:
            application.go_on_for(1)
            began, before = time.perf_counter(), application.done.total()
            application.go_on_for(seconds)
            done.append(rate(began, before))
            self.begin(Phase.PREPARED)
            with mirroring(self.pair.shop):
                self.begin(Phase.DUAL_WRITE)
                began, before = time.perf_counter(), application.done.total()
                application.go_on_for(seconds)
                done.append(rate(began, before))
                began, before = time.perf_counter(), application.done.total()
                self.begin(Phase.BACKFILLED)
                took = time.perf_counter() - began
                done.append(rate(began, before))
        plain, mirrored, copied = done
        print(f"   writes of 4 writers a second: {plain:,.0f} before, ", end="")
        print(f"{mirrored:,.0f} in dual_write ({mirrored / plain:.2f}), ", end="")
        print(f"{copied:,.0f} while it is copied, {took:.1f} s ({copied / plain:.2f})", flush=True)


def _pair(feed: str, target: str, root: Path, stack: ExitStack) -> Pair:
    pair: Pair
    if feed in PAIRS:
        pair = stack.enter_context(PAIRS[feed](root))
        print(f"{feed}", flush=True)
    else:
        goes = stack.enter_context(TARGETS[target]())
        pair = stack.enter_context(ANYWHERE[feed](root, goes))
        print(f"{feed}, to {target}", flush=True)
    return pair


def measure(feed: str, root: Path, chosen: argparse.Namespace) -> None:
    with ExitStack() as stack:
        pair = _pair(feed, chosen.target, root, stack)
        for name, text in machine.describe(pair.stores).items():
            print(f"   {name}: {text}")
        live = Live(pair, 0 if chosen.backfill else chosen.games)
        if chosen.backfill:
            pair.many(chosen.games)
            live.application.pace = chosen.pace
            live.backfill(chosen.seconds)
        else:
            live.begin(Phase.SHADOW_READ)
            with mirroring(pair.shop):
                live.lag(50)
                live.burst(chosen.burst)
                live.by_hand(min(chosen.burst, 5_000))
                if chosen.swaps:
                    terms = pair.swap
                    if not terms.gateways:
                        if chosen.command:
                            hook = stack.enter_context(Hooked(live.application, root)).command
                        else:
                            hook = stack.enter_context(told(live.application))
                        terms = msgspec.structs.replace(terms, hook=hook)
                    live.swaps(chosen.swaps, terms)
        live.side.close()
        with pair.shop.open() as project:
            commands.abort(project, "0001", drop_target=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--feed", choices=[*PAIRS, *ANYWHERE], action="append", help="postgresql")
    parser.add_argument("--target", choices=TARGETS, default="mongodb", help="of tables")
    parser.add_argument("--command", action="store_true", help="a hook that is no address")
    parser.add_argument("--games", type=int, default=2_000, help="what is there before")
    parser.add_argument("--swaps", type=int, default=20, help="each way")
    parser.add_argument("--burst", type=int, default=20_000)
    parser.add_argument("--backfill", action="store_true", help="writes while games are copied")
    parser.add_argument("--pace", type=float, default=0.0, help="a writer's pause then")
    parser.add_argument("--seconds", type=float, default=10.0, help="before the copy")
    chosen = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    for feed in chosen.feed or ["postgresql"]:
        with tempfile.TemporaryDirectory() as root:
            measure(feed, Path(root), chosen)


if __name__ == "__main__":
    main()
