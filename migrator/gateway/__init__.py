"""What an application imports: reads and writes of aggregates that follow a move.

games = Gateway.open("Game")
game = games.get("2345")
games.append("2345", "rounds", {"moves": ["q4"]})
games.update("2345", {"secondPlayer": Ref("Player", "ann")}, expected=game.version)
"""

from migrator.gateway.aio import AsyncGateway
from migrator.gateway.errors import Behind, Conflict, Rekeyed, Stopped
from migrator.gateway.follower import Terms
from migrator.gateway.found import ANY, Expected, Found
from migrator.gateway.gateway import Gateway

__all__ = [
    "ANY",
    "AsyncGateway",
    "Behind",
    "Conflict",
    "Expected",
    "Found",
    "Gateway",
    "Rekeyed",
    "Stopped",
    "Terms",
]
