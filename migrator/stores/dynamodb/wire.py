"""Requests and answers in DynamoDB's own JSON, over boto3's client.

The client finds the endpoint, signs, keeps connections and speaks TLS. What travels is written
and read here: its serializer and parser, which turn each attribute value into Python objects by
a model of shapes, would be half of the time of a copy, and hide from the observer what the
server really said.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from botocore import xform_name

from migrator.errors import Transient
from migrator.retry import request as by_retry
from migrator.stores.dynamodb.edge import edge

Answer: TypeAlias = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode
# What a page takes many of, and is idempotent by itself: each may go again alone. The outcome of a
# condition may be that of the first sending, so other requests go again with all around them.
_ALONE = frozenset({"BatchGetItem", "BatchWriteItem", "GetItem", "Query", "Scan"})
_ROUNDS = 8
_FIRST_WAIT = 0.05


class Bucket:
    """A budget of capacity units per second: who has spent more waits until it is earned.

    What a request costs is known when it is answered, so the debt is paid before the next one.
    """

    def __init__(self, units: float | None) -> None:
        self.units = units
        self.spent = 0.0
        self._level = 0.0
        self._at = time.monotonic()
        self._lock = threading.Lock()

    def spend(self, units: float) -> None:
        """Note what a request has cost."""
        with self._lock:
            self.spent += units
            self._level -= units

    def wait(self) -> None:
        """Wait until nothing is owed; a second's worth may be saved up."""
        if self.units is None:
            return
        with self._lock:
            now = time.monotonic()
            self._level = min(self.units, self._level + (now - self._at) * self.units)
            self._at = now
            owed = -self._level
        if owed > 0:
            time.sleep(owed / self.units)


class Wire:
    """One client, shared by threads."""

    def __init__(
        self,
        client: Any,
        write_units: float | None = None,
        read_units: float | None = None,
        streams: Callable[[], Any] | None = None,
    ) -> None:
        self.client = client
        self.writes = Bucket(write_units)
        self.reads = Bucket(read_units)
        self._local = threading.local()
        self._made = threading.Lock()
        self._streams: Wire | None = None
        self._make_streams = streams
        events, service = client.meta.events, client.meta.service_model.service_id.hyphenize()
        events.register(f"before-call.{service}", self._put_body)
        events.register(f"before-parse.{service}", self._take_body)

    @property
    def streams(self) -> Wire:
        """The same account's streams, which have a client of their own."""
        with self._made:
            if self._streams is None:
                assert self._make_streams is not None
                self._streams = Wire(self._make_streams())
            return self._streams

    def close(self) -> None:
        """Give the connections back."""
        self.client.close()
        if self._streams is not None:
            self._streams.close()

    def _put_body(self, params: dict[str, Any], **_: object) -> None:
        params["body"] = self._local.body

    def _take_body(self, response_dict: dict[str, Any], **_: object) -> None:
        if response_dict["status_code"] < 300:
            self._local.answer = response_dict["body"]
            response_dict["body"] = b"{}"

    def call(
        self,
        operation: str,
        request: Mapping[str, Any],
        where: str,
        *,
        key: object = None,
        writing: bool = False,
    ) -> Answer:
        """Send one request and give the answer; also its size, under ``bytes``.

        Raises Transient, Terminal or DoesNotFit; Condition and Unsupported for their callers.
        """
        if operation in _ALONE:
            return by_retry(self._send, operation, request, where, key, writing)
        return self._send(operation, request, where, key, writing)

    def _send(
        self, operation: str, request: Mapping[str, Any], where: str, key: object, writing: bool
    ) -> Answer:
        bucket = self.writes if writing else self.reads
        bucket.wait()
        self._local.body = _encode(request)
        self._local.answer = b"{}"
        with edge(where, key=key, writing=writing):
            getattr(self.client, xform_name(operation))(**_named(request))
        raw = self._local.answer
        try:
            answer: Answer = _decode(raw)
        except msgspec.DecodeError as error:
            raise Transient(f"a damaged answer: {error}", where=where, unknown=writing) from None
        finally:
            self._local.answer = self._local.body = b""
        answer["bytes"] = len(raw)
        bucket.spend(_consumed(answer))
        return answer


def _named(request: Mapping[str, Any]) -> dict[str, Any]:
    """What the client itself looks at, to find the endpoint: the names of tables."""
    if "RequestItems" in request:
        return {"RequestItems": {name: {} for name in request["RequestItems"]}}
    if "TransactItems" in request:
        return {"TransactItems": [{}]}
    return {"TableName": request["TableName"]} if "TableName" in request else {}


def _consumed(answer: Answer) -> float:
    used = answer.get("ConsumedCapacity") or ()
    return sum(
        float(one.get("CapacityUnits", 0)) for one in ([used] if isinstance(used, dict) else used)
    )


def until_done(
    send: Callable[[Any], Any], first: Any, left: Callable[[Any], str], where: str
) -> None:
    """Send what is unprocessed again until nothing is, with growing, jittered pauses.

    ``send`` gives what it could not do; ``left`` tells a person what that is. After some rounds
    it raises Transient: who called must not go on as if all were done.
    """
    todo = first

    def rounds() -> None:
        nonlocal todo
        wait = _FIRST_WAIT
        for attempt in range(_ROUNDS):
            rest = send(todo)
            if not rest:
                return
            if attempt < _ROUNDS - 1:
                time.sleep(wait * random.uniform(0.5, 1.5))  # noqa: S311
                # Part of it went through: the table has some capacity, so the pauses start anew.
                wait = _FIRST_WAIT if len(str(rest)) < len(str(todo)) // 2 else min(wait * 2, 3.0)
            todo = rest
        raise Transient(
            f"DynamoDB has left undone: {left(todo)}",
            where=where,
            hint="the table has too little capacity; the run tries again from where it stands",
        )

    by_retry(rounds)
