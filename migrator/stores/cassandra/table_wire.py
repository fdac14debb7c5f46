"""Prepared statements whose values and rows are the bytes of the protocol.

The layout ``table`` writes and reads CQL's types by itself (``columns.py``); what it needs of the
driver is a session that leaves them alone. Only prepared statements are sent, every identifier in
them is quoted, and whatever comes from a user is a bound value.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Literal, TypeAlias

from cassandra.cluster import Session
from cassandra.protocol import ResultMessage, _ProtocolHandler, read_int
from cassandra.query import UNSET_VALUE, BatchStatement, BatchType, BoundStatement

from migrator.stores.cassandra.edge import edge

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


class Wire:
    """Sends statements on a session with ``RawHandler``."""

    def __init__(self, session: Session, where: str) -> None:
        self._session = session
        self._where = where
        self._prepared: dict[str, Any] = {}
        self._lock = threading.Lock()

    def _bound(self, statement: Statement) -> BoundStatement:
        prepared = self._prepared.get(statement.cql)
        if prepared is None:
            with edge(self._where):
                prepared = self._session.prepare(statement.cql)
            with self._lock:
                self._prepared[statement.cql] = prepared
        bound = BoundStatement(prepared)
        bound.values = list(statement.values)
        bound.fetch_size = statement.fetch
        return bound

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

    def each(self, statements: Iterable[Statement]) -> Iterator[list[Row]]:
        """The rows of many small queries, in their order."""
        waiting = iter(statements)
        under_way = [
            self._session.execute_async(self._bound(s)) for s in islice(waiting, IN_FLIGHT)
        ]
        at = 0
        while at < len(under_way):
            with edge(self._where):
                found = list(under_way[at].result())
            under_way[at] = None
            at += 1
            following = next(waiting, None)
            if following is not None:
                under_way.append(self._session.execute_async(self._bound(following)))
            yield found

    def run(self, units: Iterable[Sequence[Statement]]) -> None:
        """Carry out units of writing, many at once; several statements are a logged batch.

        Waits for all that were sent; then raises the first error.
        """
        waiting = iter(units)
        under_way: list[Any] = []
        failed: BaseException | None = None
        for unit in waiting:
            if len(under_way) >= IN_FLIGHT:
                failed = self._settled(under_way.pop(0), failed)
            if failed is not None:
                break
            under_way.append(self._session.execute_async(self._unit(unit)))
        for future in under_way:
            failed = self._settled(future, failed)
        if failed is not None:
            raise failed

    def _settled(self, future: Any, failed: BaseException | None) -> BaseException | None:
        try:
            with edge(self._where, writing=True):
                future.result()
        except Exception as error:  # noqa: BLE001 - raised again once nothing is under way
            return failed or error
        return failed

    def _unit(self, unit: Sequence[Statement]) -> Any:
        if len(unit) == 1:
            return self._bound(unit[0])
        batch = BatchStatement(BatchType.LOGGED)
        for statement in unit:
            batch.add(self._bound(statement))
        return batch
