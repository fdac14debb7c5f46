"""Commands and answers on one connection, past most of the driver."""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any, TypeAlias

import hiredis
from redis import exceptions as e
from redis.connection import Connection

Arg: TypeAlias = bytes | str | int
Command: TypeAlias = tuple[Arg, ...]
Reply: TypeAlias = Any

# Commands in one piece on their way to a socket.
_AT_ONCE = 200
_CHUNK = 1 << 16
_pack: Any = hiredis.pack_command


def is_quiet(connection: Connection) -> bool:
    """Whether it is open, and nothing is there to be read, as there is where the server left."""
    sock: Any = connection._sock
    if sock is None:
        return False
    if hasattr(sock, "pending"):  # under TLS there may be what is no answer
        try:
            return not connection.can_read()
        except (e.RedisError, OSError):
            return False
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return not poll.poll(0)


def exchange(connection: Connection, commands: Sequence[Command]) -> list[Reply]:
    """Send commands and read an answer to each, refusals as exceptions."""
    # A socket and the driver's reader are asked directly, which takes a fifth of its time; where
    # there is more to it, as under TLS, the driver does that.
    made: Any = connection
    sock = made._sock if type(connection) is Connection else None
    for start in range(0, len(commands), _AT_ONCE):
        packed = b"".join(map(_pack, commands[start : start + _AT_ONCE]))
        if sock is None:
            made.send_packed_command([packed])
        else:
            sock.sendall(packed)
    reader = made._parser._reader
    replies: list[Reply] = []
    for _ in commands:
        reply = reader.gets()
        while type(reply) is object:  # as the driver says that not all of it is there yet
            if sock is not None:
                if not (data := sock.recv(_CHUNK)):
                    raise e.ConnectionError("the server closed the connection")
                reader.feed(data)
                reply = reader.gets()
                continue
            try:
                reply = made.read_response(disconnect_on_error=False)
            except _REFUSALS as error:
                reply = error
        told = reply[0] if type(reply) is list and reply else reply
        if isinstance(told, e.ConnectionError):
            if not isinstance(told, _REFUSALS):
                raise told
            reply = told
        replies.append(reply)
    return replies


# The driver has the last two below ConnectionError, though the server answered.
_REFUSALS = (e.ResponseError, e.BusyLoadingError, e.AuthenticationError)
