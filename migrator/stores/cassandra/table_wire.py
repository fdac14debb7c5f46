"""Prepared statements whose values and rows are the bytes of the protocol.

The layout ``table`` writes and reads CQL's types by itself (``columns.py``); what it needs of the
driver is a session that leaves them alone. Only prepared statements are sent, every identifier in
them is quoted, and whatever comes from a user is a bound value.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Session
from cassandra.protocol import ResultMessage, _ProtocolHandler, read_int
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, BoundStatement

from migrator.errors import Transient
from migrator.model.value import Value
from migrator.retry import again, check, request
from migrator.stores.cassandra.edge import edge

R = TypeVar("R")
T = TypeVar("T")
UNSET = UNSET_VALUE
Bytes: TypeAlias = bytes | None
Row: TypeAlias = tuple[Bytes, ...]
# A column, or a function: ("ttl", column), ("writetime", column), ("now", "").
Name: TypeAlias = str | tuple[Literal["ttl", "writetime", "now"], str]
NOW: Name = ("now", "")
Values: TypeAlias = dict[Name, Bytes]
# Requests under way at once: enough to fill a node, few enough not to flood it.
IN_FLIGHT = 32
FETCH = 500
DDL_SECONDS = 60


class _RawResult(ResultMessage):  # type: ignore[misc]
    def recv_results_rows(
        self, f: Any, version: Any, user_types: Any, result_metadata: Any, _: Any
    ) -> None:
        self.recv_results_metadata(f, user_types)
        metadata = self.column_metadata or result_metadata
        self.parsed_rows = [tuple(self.recv_row(f, len(metadata))) for _ in range(read_int(f))]
        self.column_names = [column[2] for column in metadata]
        self.column_types = [column[3] for column in metadata]


class RawHandler(_ProtocolHandler):  # type: ignore[misc]
    """Hands out every column as the bytes that came."""

    message_types_by_opcode: ClassVar = {
        **_ProtocolHandler.message_types_by_opcode,
        ResultMessage.opcode: _RawResult,
    }


@dataclass(frozen=True)
class Statement:
    """A statement with its values, all as bytes (None for null, UNSET for left alone).

    ``fetch`` is how many rows come at once; None for all of them, read in one step.
    """

    cql: str
    values: Sequence[Any]
    fetch: int | None = FETCH

    @property
    def size(self) -> int:
        """About the bytes that it sends."""
        return sum(len(x) for x in self.values if type(x) is bytes) + 8 * len(self.values) + 40


@dataclass(frozen=True)
class Unit:
    """What a write does to one block, several statements in a logged batch.

    ``anew`` makes them again, should the first try come to nothing or to an unknown end: with a
    later stamp, or a list would have its elements twice, and with the time that is left to live.
    """

    id: Value
    first: Sequence[Statement]
    anew: Callable[[], Sequence[Statement]]


class Wire:
    """Sends statements on a session with ``RawHandler``.

    What it sends for itself in a call goes again by itself where it fails for now; ``rows`` alone
    leaves that to who asks.
    """

    def __init__(self, session: Session, where: str) -> None:
        self._session = session
        self._where = where
        self._prepared: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._consistency: int | None = None

    @property
    def request_life(self) -> float:
        """For how many seconds a request is waited for."""
        return float(self._session.get_execution_profile(EXEC_PROFILE_DEFAULT).request_timeout)

    def strongest(self) -> Wire:
        """The same, whose reads ask every replica, and so mend what some of them miss."""
        strong = copy(self)
        strong._consistency = ConsistencyLevel.ALL
        return strong

    def serially(self) -> Wire:
        """The same, whose reads see every lightweight transaction that has ended."""
        serial = copy(self)
        serial._consistency = ConsistencyLevel.SERIAL
        return serial

    def at(self, where: str) -> Wire:
        """The same, whose errors name a table."""
        named = copy(self)
        named._where = where
        return named

    def _bound(self, statement: Statement) -> BoundStatement:
        prepared = self._prepared.get(statement.cql)
        if prepared is None:
            prepared = request(self._prepare, statement.cql)
            with self._lock:
                self._prepared[statement.cql] = prepared
        bound = BoundStatement(prepared)
        bound.values = list(statement.values)
        bound.fetch_size = statement.fetch
        if self._consistency is not None:
            bound.consistency_level = self._consistency
        return bound

    def _prepare(self, cql: str) -> Any:
        with edge(self._where):
            return self._session.prepare(cql)

    def forget(self) -> None:
        """Prepare anew: the tables have changed."""
        with self._lock:
            self._prepared.clear()

    def define(self, cql: str) -> None:
        """Change the schema; returns once all nodes agree on it."""
        with edge(self._where, writing=True):
            self._session.execute(cql, timeout=DDL_SECONDS)

    def rows(
        self, cql: str, values: Sequence[Any] = (), fetch: int | None = FETCH
    ) -> Iterator[Row]:
        """The rows of a query, fetched as they are asked for."""
        bound = self._bound(Statement(cql, values, fetch))
        with edge(self._where):
            yield from self._session.execute(bound)

    def few(self, cql: str, values: Sequence[Any] = ()) -> list[Row]:
        """The rows of a query that has few."""
        return request(lambda: list(self.rows(cql, values)))

    def each(self, statements: Iterable[Statement]) -> Iterator[list[Row]]:
        """The rows of many small queries, in their order."""
        yield from self._answers(statements, self._ask, self._answer)

    def _ask(self, statement: Statement) -> Any:
        return self._session.execute_async(self._bound(statement))

    def _answer(self, _: Statement, future: Any) -> list[Row]:
        with edge(self._where):
            return list(future.result())

    def transact(self, id: Value, statements: Sequence[Statement]) -> bool:
        """Carry out one lightweight transaction of a block; whether its condition held.

        It is sent once: who sends it again has to find out first what became of it (R6, R12).
        """
        check()
        with edge(self._where, writing=True, key=id):
            ((applied, *_),) = list(self._session.execute(self._together(statements)))
        return bool(applied == b"\x01")

    def run(self, units: Iterable[Unit]) -> None:
        """Carry out units of writing, many at once.

        Waits for all that were sent; then raises the first error. Raises DoesNotFit, naming the
        block, where the server takes the others.
        """
        for _ in self._answers(units, self._put, self._done, self._put_anew):
            pass

    def _put(self, unit: Unit) -> Any:
        return self._session.execute_async(self._together(unit.first))

    def _put_anew(self, unit: Unit) -> Any:
        return self._session.execute_async(self._together(unit.anew()))

    def _done(self, unit: Unit, future: Any) -> None:
        with edge(self._where, writing=True, key=unit.id):
            future.result()

    def _together(self, statements: Sequence[Statement]) -> Any:
        if len(statements) == 1:
            return self._bound(statements[0])
        batch = BatchStatement(BatchType.LOGGED)
        for statement in statements:
            batch.add(self._bound(statement))
        return batch

    def _answers(
        self,
        asked: Iterable[R],
        begin: Callable[[R], Any],
        end: Callable[[R, Any], T],
        repeat: Callable[[R], Any] | None = None,
    ) -> Iterator[T]:
        """The answers to many requests, in their order; up to IN_FLIGHT are under way at once.

        One that fails for now is begun again (by ``repeat``) while the others go on. However this
        ends, none is under way any more (C71).
        """
        waiting = iter(asked)
        under_way: deque[tuple[R, Any]] = deque()

        def send_more() -> None:
            for one in islice(waiting, IN_FLIGHT - len(under_way)):
                check()
                under_way.append((one, begin(one)))

        def send_again(one: R) -> T:
            return end(one, (repeat or begin)(one))

        try:
            send_more()
            while under_way:
                one, future = under_way.popleft()
                try:
                    answer = end(one, future)
                except Transient as error:
                    answer = again(error, send_again, one)
                send_more()
                yield answer
        finally:
            for _, future in under_way:
                with suppress(Exception):
                    future.result()
