"""A connection of our own to one server, whose answers are read as they come."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

from redis import exceptions as e

from migrator.errors import Transient
from migrator.stores.redis import edge
from migrator.stores.redis.settings import Address, Servers
from migrator.stores.redis.wire import Arg, Reply

_CHUNK = 1 << 18


class Line:
    """One connection to one server, by one thread at a time. Raises Transient, Terminal."""

    def __init__(self, servers: Servers, address: Address, where: str) -> None:
        self.where = where
        self._patience: float = servers.options["socket_timeout"]
        made: Any = servers.connection(host=address.host, port=address.port, **servers.options)
        self._connection = made
        try:
            made.connect()
        except (e.RedisError, OSError) as error:
            raise edge.unreachable(error, where) from error

    def close(self) -> None:
        with suppress(e.RedisError, OSError):
            self._connection.disconnect()

    def hang_up(self) -> None:
        """End a ``receive`` that another thread waits in."""
        with suppress(OSError, AttributeError):
            self._connection._sock.shutdown(socket.SHUT_RDWR)

    def ask(self, *command: Arg) -> Reply:
        """Send a command; its answer. Raises for a refusal."""
        try:
            self._connection.send_command(*command)
            return self._connection.read_response(disconnect_on_error=False)
        except (e.ResponseError, e.AuthenticationError) as error:
            raise edge.refused(error, self.where) from error
        except (e.RedisError, OSError) as error:
            raise edge.broken(error, self.where, writing=False) from error

    def tell(self, *command: Arg) -> None:
        """Send a command whose answer comes with all else."""
        try:
            self._connection._sock.settimeout(self._patience)
            self._connection.send_command(*command, check_health=False)
        except (e.RedisError, OSError) as error:
            raise edge.broken(error, self.where, writing=False) from error

    def take(self, seconds: float) -> bytes:
        """What has come, nothing where nothing came in time."""
        try:
            self._connection._sock.settimeout(seconds)
            got: bytes = self._connection._sock.recv(_CHUNK)
        except TimeoutError:
            return b""
        except OSError as error:
            raise edge.broken(error, self.where, writing=False) from error
        if not got:
            raise Transient("the server ended the connection", where=self.where)
        return got
