"""The literature's case study as data: games of about 8 KB with a dozen rounds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from migrator.model.block import Aggregate, cut
from migrator.model.value import Record
from migrator.ports import Collection

_WORDS = ["castle", "swap", "freeze", "knight", "pawn", "queen", "gambit", "bishop", "rook"]
_BATCH = 500
# So many different values; each key gets one of them, so that making them is not what takes long.
_DIFFERENT = 1000

Make = Callable[[int], Record]


def game(number: int) -> Record:
    """A game of about 8 KB: twelve rounds of 0.6 KB and some fields. Seeded by its number."""
    rng = random.Random(number)

    def text(words: int) -> str:
        return " ".join(rng.choices(_WORDS, k=words))

    return {
        "id": f"game-{number:08}",
        "firstPlayer": f"player-{number % 977}",
        "secondPlayer": f"player-{number % 499}",
        "status": rng.choice(["open", "won", "lost", "drawn"]),
        "score": number,
        "rounds": [
            {
                "number": i,
                "moves": [text(6) for _ in range(4)],
                "comments": [text(28), text(28)],
                "spell": rng.choice([None, "freeze", "swap"]),
                "seconds": rng.random() * 60,
            }
            for i in range(12)
        ],
    }


def small(number: int) -> Record:
    """A block of about 60 bytes, for runs over a million of them."""
    return {"id": number, "name": f"n{number}", "rounds": [{"n": 1}]}


def key(number: int) -> str:
    """The block key of an aggregate."""
    return f"game-{number:08}"


def aggregates(count: int, make: Make = game) -> Iterator[Aggregate]:
    """So many aggregates with text keys in order."""
    made = [make(n) for n in range(min(count, _DIFFERENT))]
    for number in range(count):
        yield Aggregate(key(number), made[number % len(made)])


def load(collection: Collection, count: int, make: Make = game) -> None:
    """Fill a fresh collection."""
    collection.drop()
    collection.create()
    rules = collection.at.rules(collection.cls)
    batch = []
    for aggregate in aggregates(count, make):
        batch.append(cut(aggregate, rules))
        if len(batch) == _BATCH:
            collection.write(batch)
            batch = []
    if batch:
        collection.write(batch)
