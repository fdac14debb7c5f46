"""Players and games out of the shop database.

Each game takes its rounds along: they are read together and written together.
"""

from migrator import At, Move, tables

revision, down_revision = "0001", None

moves = [
    Move(
        "Player",
        source=At("shop", tables("player")),
        target=At("docs", "players", representation=["/Player/*"]),
        identifier="username",
    ),
    Move(
        "Game",
        source=At("shop", tables("game", rounds=tables("round", order_by="number"))),
        target=At("docs", "games", representation=["/Game/*"]),
        identifier="id",
        references={"first_player": "Player", "second_player": "Player"},
    ),
]
