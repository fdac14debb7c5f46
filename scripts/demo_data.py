#!/usr/bin/env python3
"""Make the shop database of the demo: players, their games, the rounds of each game.

    scripts/demo_data.py demo/shop.db [--games 2600] [--seed 1]

The same seed gives the same rows. About 20,000 rows with the defaults, some of them awkward on
purpose: players without a score, games without rounds, rounds without comments, letters from
beyond ASCII. An existing file is replaced.
"""

from __future__ import annotations

import argparse
import datetime as dt
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

SCHEMA = Path(__file__).with_name("demo_schema.sql")
FIRST_NAMES = (
    "Mary Ricky Ann Johnny Sofía Łukasz Chloé Mehmet Aiko Björn Nadia Óscar Priya Tomáš Zoë "
    "Ibrahim Ingrid Paolo Grace Dmitri Yara Henrik Lucía Samuel"
)
LAST_NAMES = (
    "Wilson Doe Smith O'Brien García Kowalska Lefèvre Yılmaz Tanaka Lindström Haddad Núñez Patel "
    "Dvořák Jansen Diallo Solberg Rossi Okafor Petrov Haddou Madsen Torres Cohen"
)
SPELLS = ("freeze", "swap", "mirror", "double step", "fog", "second wind")
COMMENTS = (
    "nice",
    "a risky one",
    "did not see that coming",
    "took ten minutes to find",
    "should have kept the queen side closed",
    "the only move that holds; everything else loses the exchange at once",
    "¡qué jugada!",
    "I'd play it again",
    "time was running out",
)
FIRST_DAY = dt.datetime(2024, 1, 6, 18, 0)


def players(chance: random.Random, count: int) -> Iterator[tuple[str, str, str, int | None]]:
    """Rows of ``player``: user names are unique, one in twelve has no score yet."""
    first_names, last_names = FIRST_NAMES.split(), LAST_NAMES.split()
    for number in range(count):
        first, last = chance.choice(first_names), chance.choice(last_names)
        score = None if chance.random() < 1 / 12 else int(chance.gauss(1200, 250))
        yield f"{first.lower()}{number + 1}", first, last, score


def games(
    chance: random.Random, usernames: list[str], count: int
) -> Iterator[tuple[int, str, str, str, str]]:
    """Rows of ``game``, in the order they were started."""
    started = FIRST_DAY
    for number in range(count):
        first, second = chance.sample(usernames, 2)
        status = chance.choices(("over", "open", "left"), (85, 10, 5))[0]
        started += dt.timedelta(seconds=chance.randrange(60, 14_400))
        yield 1001 + number, first, second, status, started.isoformat(" ")


def rounds(
    chance: random.Random, game: int
) -> Iterator[tuple[int, int, str, str | None, str | None]]:
    """Rows of ``round`` of one game; one game in twenty has none."""
    count = 0 if chance.random() < 1 / 20 else chance.randrange(2, 12)
    for number in range(1, count + 1):
        squares = (f"{chance.choice('abcdefgh')}{chance.randrange(1, 9)}" for _ in range(4))
        moves = " ".join(list(squares)[: chance.randrange(1, 5)])
        comment = chance.choice(COMMENTS) if chance.random() < 0.6 else None
        spell = chance.choice(SPELLS) if chance.random() < 0.15 else None
        yield game, number, moves, comment, spell


def make(path: Path, seed: int = 1, game_count: int = 2600) -> dict[str, int]:
    """Write the database, in place of any that is there; the number of rows by table."""
    chance = random.Random(seed)
    player_rows = list(players(chance, max(2, game_count // 4)))
    game_rows = list(games(chance, [row[0] for row in player_rows], game_count))
    round_rows = [row for game in game_rows for row in rounds(chance, game[0])]
    path.parent.mkdir(parents=True, exist_ok=True)
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    with connection:
        connection.executescript(SCHEMA.read_text(encoding="utf-8"))
        connection.executemany("INSERT INTO player VALUES (?, ?, ?, ?)", player_rows)
        connection.executemany("INSERT INTO game VALUES (?, ?, ?, ?, ?)", game_rows)
        connection.executemany("INSERT INTO round VALUES (?, ?, ?, ?, ?)", round_rows)
    connection.close()
    return {"player": len(player_rows), "game": len(game_rows), "round": len(round_rows)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--games", type=int, default=2600)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    counts = make(given.path, given.seed, given.games)
    print(f"{given.path}: {', '.join(f'{n:,} {table}s' for table, n in counts.items())}")


if __name__ == "__main__":
    main()
