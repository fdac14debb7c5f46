"""Stands between clients and a server, and can fall silent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from urllib.parse import urlsplit

from tests.ending import joined


class Between:
    """Stands between clients and a server, and can fall silent: then it holds all that is asked,
    and takes new connections as a stopped server's kernel does. What was asked for still comes."""

    def __init__(self, host: str, port: int) -> None:
        self._server = host, port
        self._listens = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listens.getsockname()[1]
        self._flows = threading.Event()
        self._flows.set()
        self._open: list[socket.socket] = []
        self.held: list[bytes] = []
        self.silent_at: bytes | None = None  # in what is asked: it falls silent there by itself
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def _begin(self, do: Callable[..., None], *of: socket.socket) -> None:
        self._threads.append(threading.Thread(target=do, args=of, daemon=True))
        self._threads[-1].start()

    def fall_silent(self) -> None:
        self._flows.clear()

    def go_on(self) -> None:
        self._flows.set()

    def close(self) -> None:
        self._flows.set()
        # Shut down first: a thread that waits at a socket keeps what was only closed alive, and so
        # a session of the server with its locks.
        accepting, *_ = self._threads
        _shut(self._listens)
        joined(accepting)
        _shut(*self._open)
        joined(*self._threads)
        for each in (self._listens, *self._open):
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):  # until it is closed
            while True:
                client, _ = self._listens.accept()
                try:
                    server = socket.create_connection(self._server)
                except OSError:  # refused: so is the client, and who comes after it may not be
                    client.close()
                    continue
                self._open += [client, server]
                for ends in ((client, server), (server, client)):
                    self._begin(self._carry, *ends)

    def _carry(self, start: socket.socket, end: socket.socket) -> None:
        with suppress(OSError):
            while data := start.recv(65536):
                asks = start.getsockname()[1] == self.port
                if asks and self.silent_at is not None and self.silent_at in data:
                    self.silent_at = None
                    self.fall_silent()
                if asks and not self._flows.is_set():
                    self.held.append(data)
                    self._flows.wait()
                end.sendall(data)
        _shut(start, end)


def _shut(*sockets: socket.socket) -> None:
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


@contextmanager
def between(url: str) -> Iterator[tuple[Between, str]]:
    """What stands before a server, and the server's URL by it."""
    parts = urlsplit(url)
    with closing(Between(parts.hostname or "", parts.port or 0)) as made:
        user, at, _ = parts.netloc.rpartition("@")
        yield made, parts._replace(netloc=f"{user}{at}127.0.0.1:{made.port}").geturl()
