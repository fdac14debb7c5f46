"""Faults at a driver's edge, drawn from a seed and counted: for any adapter over these drivers.

Nothing here knows a store of ours: each hook takes an object of the driver that the adapter made,
and uses what the driver offers for that. The server behind it is a real one.

    faults = Faults(seed=1)
    faults.on_botocore(client)            # a boto3 client of DynamoDB
    faults.on_cassandra(session)          # a session of cassandra-driver
    connection_class = faults.redis(Connection)
    with faults:                          # before and after that, nothing happens
        ...
    assert faults.injected[Fault.LOST]
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from io import BytesIO
from typing import Any, Self


class Fault(StrEnum):
    """What may happen to a request."""

    THROTTLED = "throttled"
    """The server asks to come later; nothing was done."""
    LOST = "lost"
    """It was carried out whole, and its answer does not arrive in time."""
    CUT = "cut"
    """The connection breaks while it is sent; a pipeline may have been carried out in part."""
    UNPROCESSED = "unprocessed"
    """DynamoDB leaves the second half of a batch undone and says so."""


class Faults:
    """Draws what happens to each request; safe for several threads.

    Shares are of 1; their sum is at most 1. ``unprocessed`` is the share of the other requests
    that are batches of at least two. ``injected`` counts each kind, ``requests`` all that were
    looked at. Which request gets which fault depends on the seed and on the order of requests.
    """

    def __init__(
        self,
        seed: int,
        *,
        throttled: float = 0.20,
        lost: float = 0.05,
        cut: float = 0.05,
        unprocessed: float = 0.20,
    ) -> None:
        self.requests = 0
        self.injected: Counter[Fault] = Counter()
        self._shares = {Fault.THROTTLED: throttled, Fault.LOST: lost, Fault.CUT: cut}
        self._unprocessed = unprocessed
        self._random = random.Random(seed)  # noqa: S311 - to be repeatable is the point
        self._on = False
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._on = True
        return self

    def __exit__(self, *_: object) -> None:
        self._on = False

    @contextmanager
    def calm(self) -> Iterator[None]:
        """No faults inside, for what nobody repeats: a first greeting that must tell at once."""
        before, self._on = self._on, False
        try:
            yield
        finally:
            self._on = before

    @property
    def to_repeat(self) -> int:
        """How many requests failed, so that somebody has to send them again."""
        return sum(self.injected[fault] for fault in self._shares)

    def draw(self, *, batch: bool = False) -> Fault | None:
        """What happens to the next request; None for nothing."""
        with self._lock:
            if not self._on:
                return None
            self.requests += 1
            drawn = self._random.random()
            for fault, share in self._shares.items():
                if drawn < share:
                    self.injected[fault] += 1
                    return fault
                drawn -= share
            if batch and self._random.random() < self._unprocessed:
                self.injected[Fault.UNPROCESSED] += 1
                return Fault.UNPROCESSED
            return None

    def on_botocore(self, client: Any) -> None:
        """Put faults before and after the requests of a boto3 client of DynamoDB.

        The client must repeat nothing by itself (``total_max_attempts`` of 1).
        """
        _Botocore(self, client)

    def on_cassandra(self, session: Any) -> None:
        """Put faults on ``execute`` and ``execute_async`` of a session of cassandra-driver."""
        _cassandra(self, session)

    def redis(self, connection: type[Any]) -> type[Any]:
        """A class of redis-py's connections with faults: what is sent before an answer is read
        counts as one request."""
        return _redis(self, connection)


# ------------------------------------------------------------------ DynamoDB


class _Botocore:
    """Handlers of botocore's events; one request runs in one thread from the first to the last."""

    def __init__(self, faults: Faults, client: Any) -> None:
        self._faults = faults
        self._local = threading.local()
        events = client.meta.events
        # Last, so that an adapter that writes the body itself has done so.
        events.register_last("before-call.dynamodb", self._begin)
        events.register("before-send.dynamodb", self._send)
        # First, so that an adapter that takes the answer itself sees what is left undone.
        events.register_first("before-parse.dynamodb", self._parse)
        events.register("after-call.dynamodb", self._end)

    def _begin(self, params: dict[str, Any], **_: object) -> None:
        request = json.loads(params["body"])
        tables = request.get("RequestItems") or {}
        items = [(name, item) for name in tables for item in _items(tables[name])]
        self._local.fault = self._faults.draw(batch=len(items) > 1)
        self._local.undone = None
        if self._local.fault is Fault.UNPROCESSED:
            half = len(items) // 2
            self._local.undone = _tables(tables, items[half:])
            request["RequestItems"] = _tables(tables, items[:half])
            params["body"] = json.dumps(request).encode()

    def _send(self, request: Any, **_: object) -> Any:
        from botocore.awsrequest import AWSResponse, HTTPHeaders
        from botocore.exceptions import ConnectionClosedError

        if self._local.fault is Fault.CUT:
            raise ConnectionClosedError(endpoint_url=request.url)
        if self._local.fault is Fault.THROTTLED:
            kind = "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"
            body = json.dumps({"__type": kind, "message": "injected"}).encode()
            return AWSResponse(request.url, 400, HTTPHeaders(), _Raw(body))
        return None

    def _parse(self, response_dict: dict[str, Any], **_: object) -> None:
        if self._local.undone is None or response_dict["status_code"] >= 300:
            return
        answer = json.loads(response_dict["body"])
        name = "UnprocessedKeys" if "Responses" in answer else "UnprocessedItems"
        left = answer.setdefault(name, {})
        for table, undone in self._local.undone.items():
            if isinstance(undone, list):
                left[table] = [*left.get(table, []), *undone]
            else:
                left[table] = {**undone, "Keys": [*_items(left.get(table, [])), *undone["Keys"]]}
        response_dict["body"] = json.dumps(answer).encode()

    def _end(self, http_response: Any, **_: object) -> None:
        from botocore.exceptions import ReadTimeoutError

        if self._local.fault is Fault.LOST:
            raise ReadTimeoutError(endpoint_url=http_response.url)


def _items(of_table: Any) -> list[Any]:
    """What a batch asks of one table: writes are a list, reads have it under ``Keys``."""
    return list(of_table["Keys"] if isinstance(of_table, dict) else of_table)


def _tables(whole: dict[str, Any], items: list[tuple[str, Any]]) -> dict[str, Any]:
    """The request for some of the items of a batch."""
    made: dict[str, Any] = {}
    for name in dict.fromkeys(name for name, _ in items):
        mine = [item for table, item in items if table == name]
        made[name] = {**whole[name], "Keys": mine} if isinstance(whole[name], dict) else mine
    return made


class _Raw(BytesIO):
    """The body of an answer, as botocore reads it."""

    def stream(self, *_: object, **__: object) -> list[bytes]:
        return [self.read()]


# ------------------------------------------------------------------ Redis


def _redis(faults: Faults, base: type[Any]) -> type[Any]:
    from redis.exceptions import ConnectionError, RedisError, ResponseError, TimeoutError

    class Faulty(base):  # type: ignore[misc]
        _ready = False
        _sending = False
        _fault: Fault | None = None
        _commands = 0

        def connect(self, *args: Any, **kwargs: Any) -> Any:
            # What a connection sends to get ready is no request of the adapter.
            if self.is_connected:
                return super().connect(*args, **kwargs)
            self._ready = self._sending = False
            self._fault, self._commands = None, 0
            done = super().connect(*args, **kwargs)
            self._ready, self._commands = True, 0
            return done

        def pack_command(self, *args: Any) -> Any:
            self._commands += 1
            return super().pack_command(*args)

        def pack_commands(self, commands: Any) -> Any:
            commands = list(commands)
            packed = super().pack_commands(commands)
            self._commands += len(commands)
            return packed

        def send_packed_command(self, command: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._ready:
                return super().send_packed_command(command, *args, **kwargs)
            if not self._sending:
                self._sending, self._fault = True, faults.draw()
            if self._fault is Fault.THROTTLED:
                return None
            if self._fault is Fault.CUT:
                whole = b"".join([command] if isinstance(command, bytes) else command)
                super().send_packed_command([whole[: len(whole) // 2]], *args, **kwargs)
                self.disconnect()
                raise ConnectionError("injected: the connection was cut")
            return super().send_packed_command(command, *args, **kwargs)

        def read_response(self, *args: Any, **kwargs: Any) -> Any:
            if not self._ready:
                return super().read_response(*args, **kwargs)
            self._sending = False
            if self._fault is Fault.THROTTLED:
                self._commands = 0
                raise ResponseError("BUSY injected")
            if self._fault is Fault.LOST:
                for _ in range(self._commands):
                    try:
                        super().read_response(*args, **kwargs)
                    except RedisError:
                        continue
                self.disconnect()
                raise TimeoutError("injected: the answer was lost")
            self._commands -= 1
            return super().read_response(*args, **kwargs)

    return Faulty


# ------------------------------------------------------------------ Cassandra


class _Future:
    """What ``execute_async`` gives, for a request that fails."""

    def __init__(self, error: Exception, request: Any = None) -> None:
        self._error = error
        self._request = request

    def result(self) -> Any:
        if self._request is not None:
            self._request.result()
        raise self._error


def _cassandra(faults: Faults, session: Any) -> None:
    from cassandra import OperationTimedOut
    from cassandra.connection import ConnectionShutdown
    from cassandra.protocol import OverloadedErrorMessage

    send = session.execute_async

    def execute_async(*args: Any, **kwargs: Any) -> Any:
        match faults.draw():
            case Fault.THROTTLED:
                return _Future(OverloadedErrorMessage(0x1001, "injected", {}))
            case Fault.CUT:
                return _Future(ConnectionShutdown("injected"))
            case Fault.LOST:
                return _Future(OperationTimedOut("injected"), send(*args, **kwargs))
        return send(*args, **kwargs)

    session.execute_async = execute_async
