"""What a gateway sends, as named points of its process: each request by its first word, before
it is sent, and with ``sent`` behind that once it is, before its answer.

It works at the edge of every driver, and for good: only in a process that is to be killed. What
goes as one message is sent in two where a commit ends it, so that all before has been carried out.
"""

from __future__ import annotations

import socket
import sqlite3
import threading
from collections.abc import Sequence
from typing import Any

import psycopg
import pymongo.monitoring
import pymysql
from botocore.httpsession import URLLib3Session
from pymysql.constants.COMMAND import COM_QUERY

from migrator.engine.points import reached
from migrator.gateway.sending import Sending
from migrator.stores.redis import wire
from migrator.stores.sql import answers_mysql, pipeline

_telling = threading.Event()
_said = ""
_COMMIT = "; COMMIT"


def hook_in() -> None:
    """Hook into all drivers, before anything is opened. Nothing is told before ``tell``."""
    for hook in (_gateway, _sockets, _postgresql, _mysql, _sqlite, _mongodb, _dynamodb, _redis):
        hook()


def tell() -> None:
    """Tell of what the main thread sends from here on: others renew leases."""
    _telling.set()


def _tell(word: str) -> None:
    global _said
    if _is_told():
        _said = word
        reached(word)


def _tell_sent() -> None:
    if _is_told():
        reached(f"{_said} sent")


def _is_told() -> bool:
    return _telling.is_set() and threading.current_thread() is threading.main_thread()


def _word(text: object) -> str:
    told = bytes(text).decode(errors="replace") if isinstance(text, (bytes, bytearray)) else text
    return str(told).rpartition("; ")[2].split(None, 1)[0].upper()


def _gateway() -> None:
    """Before anything of a write is sent, and once it is carried out and nobody was told."""
    try_ = Sending._try

    def tried(self: Any, *args: Any) -> Any:
        _tell("permitted")
        if done := try_(self, *args):
            _tell("answered")
        return done

    Sending._try = tried  # type: ignore[method-assign]


def _sockets() -> None:
    """Of all drivers in Python."""
    sendall: Any = socket.socket.sendall

    def sent(self: Any, *args: Any) -> None:
        sendall(self, *args)
        _tell_sent()

    replaced: Any = socket.socket
    replaced.sendall = sent


def _postgresql() -> None:
    cursor: Any = psycopg.Cursor
    connection: Any = psycopg.Connection
    execute, many = cursor.execute, cursor.executemany
    commit, send = connection.commit, pipeline.send

    def executed(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        _tell(_word(query))
        return execute(self, query, *args, **options)

    def executed_many(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        _tell(_word(query))
        return many(self, query, *args, **options)

    def committed(self: Any) -> None:
        _tell("COMMIT")
        commit(self)

    def sent(raw: Any, asked: Sequence[Any], meanwhile: Any = None) -> Any:
        *before, (last, _) = asked
        if not before or last != "COMMIT":
            _tell(_word(last))
            return send(raw, asked, meanwhile)
        answers = send(raw, before, meanwhile)
        _tell(last)
        return answers + send(raw, asked[-1:], _tell_sent)

    cursor.execute, cursor.executemany, connection.commit = executed, executed_many, committed
    pipeline.send = sent


def _mysql() -> None:
    connection: Any = pymysql.connections.Connection
    execute, ask = connection._execute_command, answers_mysql.ask

    def executed(self: Any, command: int, text: Any) -> Any:
        if command == COM_QUERY:
            _tell(_word(text))
        return execute(self, command, text)

    def asked(raw: Any, text: str, meanwhile: Any = None) -> Any:
        before = text.removesuffix(_COMMIT)
        answers = ask(raw, before, meanwhile)
        return answers if before == text else answers + ask(raw, "COMMIT")

    connection._execute_command = executed
    answers_mysql.ask = asked


def _sqlite() -> None:
    """Statements of the stores, and not of the control database."""
    connect: Any = sqlite3.connect

    def connected(file: Any, *args: Any, **options: Any) -> Any:
        made = connect(file, *args, **options)
        if ".migrator" not in str(file):
            made.set_trace_callback(lambda text: _tell(_word(text)))
        return made

    sqlite3.connect = connected


class _Listener(pymongo.monitoring.CommandListener):
    def started(self, event: pymongo.monitoring.CommandStartedEvent) -> None:
        _tell(event.command_name)

    def succeeded(self, event: pymongo.monitoring.CommandSucceededEvent) -> None: ...

    def failed(self, event: pymongo.monitoring.CommandFailedEvent) -> None: ...


def _mongodb() -> None:
    pymongo.monitoring.register(_Listener())


def _dynamodb() -> None:
    session: Any = URLLib3Session
    send = session.send

    def sent(self: Any, request: Any) -> Any:
        target = request.headers.get("X-Amz-Target", "")
        _tell((target.decode() if isinstance(target, bytes) else target).rpartition(".")[2])
        return send(self, request)

    session.send = sent


def _redis() -> None:
    exchange = wire._exchange

    def sent(connection: Any, commands: Any) -> Any:
        word = str(commands[-1][0]) if commands else ""
        if word != "EXEC":
            _tell(word)
            return exchange(connection, commands)
        replies = exchange(connection, commands[:-1])  # all are queued
        _tell(word)
        return replies + exchange(connection, commands[-1:])

    wire._exchange = sent
