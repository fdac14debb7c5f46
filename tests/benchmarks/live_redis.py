"""What a live move between two servers of Redis costs an application, as ``live`` has it.

    python -m tests.benchmarks.live_redis --help

Games lie in a hash and a list each, and go to one JSON text each.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from migrator import commands
from migrator.model.phase import Phase
from tests.benchmarks.live import Live, measure
from tests.benchmarks.sides import Side
from tests.contract.own_redis import Own
from tests.system.application import Application, Held, Rounds
from tests.system.kit import Shop
from tests.system.test_live_redis import Keys, keys_at

NAME = "game"


class Texts:
    """Games as JSON, each in one string."""

    def __init__(self, own: Own) -> None:
        self.client = redis.Redis(port=own.port)

    def put(self, key: str, number: int, rounds: Rounds) -> None:
        told = [{"pos": place, "spell": spell} for place, spell in enumerate(rounds)]
        game = {"id": key, "n": number, "rounds": told}
        self.client.set(f"{NAME}:{key}", json.dumps(game))

    def append(self, key: str, place: int, spell: str) -> None:
        game = json.loads(self.client.get(f"{NAME}:{key}") or "{}")
        game["rounds"].append({"pos": place, "spell": spell})
        self.client.set(f"{NAME}:{key}", json.dumps(game))

    def delete(self, key: str) -> None:
        self.client.delete(f"{NAME}:{key}")

    def held(self) -> dict[str, Held]:
        return {}  # what is there is looked at by tests

    def close(self) -> None:
        self.client.close()


class LiveRedis(Live):
    """The move, carried as far as ``shadow_read``."""

    def __init__(self, root: Path, old: Own, new: Own, games: int) -> None:
        self.keys, self.texts = Keys(old, NAME), Texts(new)
        for number in range(games):
            self.keys.put(f"old-{number}", number, ["a", "b"])
        self.shop = Shop(root, {"cache": old.url, "new": new.url})
        self.shop.script(
            f"move = Move('Game', source={keys_at(NAME)}, "
            f"target=At('new', '{NAME}', ['/Game/*'], 'string'))"
        )
        self.application = Application(
            {"source": lambda: Keys(old, NAME), "target": lambda: Texts(new)}
        )

    def begin(self) -> None:
        with self.shop.open() as project:
            plan = commands.plan(project, "0001", live=True)
            terms = commands.Terms(accept=[finding.code for finding in plan.findings])
            commands.apply(project, plan, until=Phase.SHADOW_READ, terms=terms)

    def by_hand(self, writes: int) -> None:
        """Not asked for: Redis keeps up with the mirror."""

    def _arrived(self, key: str) -> int:
        found = self.texts.client.get(f"{NAME}:{key}")
        return -1 if found is None else int(json.loads(found)["n"])

    def wait_for(self, key: str, number: int) -> None:
        while self._arrived(key) != number:
            time.sleep(0.0005)

    def lag(self, times: int) -> None:
        took = []
        for number in range(times):
            began = time.perf_counter()
            self.keys.put("lag", number, [])
            self.wait_for("lag", number)
            took.append((time.perf_counter() - began) * 1000)
        took.sort()
        middle, most = took[len(took) // 2], took[-1]
        print(f"   lag of a write, {times} times: median {middle:.0f} ms, most {most:.0f} ms")

    def burst(self, writes: int) -> None:
        with self.keys.client.pipeline(transaction=False) as many:
            for number in range(writes):
                many.hset(f"{NAME}:burst-{number}", mapping={"id": f'"burst-{number}"', "n": 1})
            many.execute()
        began = time.perf_counter()
        self.wait_for(f"burst-{writes - 1}", 1)
        took = time.perf_counter() - began
        began = time.perf_counter()
        self.keys.put("lag", -7, [])
        self.wait_for("lag", -7)
        after = (time.perf_counter() - began) * 1000
        print(f"   a burst of {writes:,} keys: {writes / took:,.0f}/s, lag after it {after:.0f} ms")


@contextmanager
def servers() -> Iterator[tuple[Own, Own]]:
    """Two, whose streams nobody else fills."""
    with tempfile.TemporaryDirectory() as old, tempfile.TemporaryDirectory() as new:
        made = Own(old, "--appendonly", "yes"), Own(new, "--appendonly", "yes")
        try:
            yield made
        finally:
            for each in made:
                each.stop()


if __name__ == "__main__":
    measure(__doc__, {Side("redis", "native"), Side("redis", "string")}, servers, LiveRedis)
