"""Each round an entry of its own, so that adding one rewrites nothing else."""

from migrator import At, Move

revision, down_revision = "0002", "0001"

move = Move(
    "Game",
    target=At("docs", "games_by_round", representation=["/Game/*/rounds[*]", "/Game/*"]),
    identifier="id",
)
