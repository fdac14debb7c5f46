"""The gateway for asyncio: the same calls, each carried out by a thread of the gateway's own.

The drivers of most stores only wait, so threads cost little; one lease and one thread that renews
it serve all of them. A call that is cancelled goes on to its end: whether it was carried out is as
unknown as after a lost connection.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from types import TracebackType
from typing import Literal, ParamSpec, TypeVar

from migrator.errors import Refused
from migrator.gateway.follower import Terms
from migrator.gateway.found import ANY, Expected, Found
from migrator.gateway.gateway import Gateway
from migrator.model.value import Record, Value

P = ParamSpec("P")
T = TypeVar("T")
THREADS = 16


class AsyncGateway:
    """As ``Gateway``, for coroutines; ``threads`` calls are under way at once, the rest wait."""

    def __init__(self, gateway: Gateway, threads: int = THREADS) -> None:
        self._gateway = gateway
        self._threads = threads
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._pid = os.getpid()
        self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="gateway")

    @classmethod
    async def open(
        cls,
        of: str,
        config: str | Path | None = None,
        env: str | None = None,
        *,
        revision: str | None = None,
        shape: Literal["source", "target"] | None = None,
        terms: Terms | None = None,
        shadow: float | None = None,
        threads: int = THREADS,
    ) -> AsyncGateway:
        """Follow a class. Raises as ``Gateway.open`` does."""
        gateway = await asyncio.to_thread(
            Gateway.open, of, config, env, revision=revision, shape=shape, terms=terms,
            shadow=shadow,
        )  # fmt: skip
        return cls(gateway, threads)

    async def _call(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._closed:
            raise Refused("the gateway is closed", hint="open a new one")
        if self._pid != os.getpid():
            self._start()  # a forked child has none of the threads
        context, loop = copy_context(), asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: context.run(call, *args, **kwargs))

    async def get(self, id: Value) -> Found | None:
        """As ``Gateway.get``."""
        return await self._call(self._gateway.get, id)

    async def get_entries(self, id: Value, paths: Sequence[str]) -> dict[str, Value] | None:
        """As ``Gateway.get_entries``."""
        return await self._call(self._gateway.get_entries, id, paths)

    async def put(
        self,
        id: Value,
        value: Record,
        *,
        expires: int | None = None,
        expected: Expected = ANY,
        wait: bool = False,
    ) -> Found:
        """As ``Gateway.put``."""
        return await self._call(
            self._gateway.put, id, value, expires=expires, expected=expected, wait=wait
        )

    async def update(
        self,
        id: Value,
        set: Mapping[str, Value] | None = None,
        *,
        remove: Sequence[str] = (),
        expected: Expected = ANY,
        wait: bool = False,
    ) -> Found:
        """As ``Gateway.update``."""
        return await self._call(
            self._gateway.update, id, set, remove=remove, expected=expected, wait=wait
        )

    async def append(
        self, id: Value, path: str, item: Value, *, expected: Expected = ANY, wait: bool = False
    ) -> Found:
        """As ``Gateway.append``."""
        return await self._call(self._gateway.append, id, path, item, expected=expected, wait=wait)

    async def delete(self, id: Value, *, expected: Expected = ANY, wait: bool = False) -> None:
        """As ``Gateway.delete``."""
        await self._call(self._gateway.delete, id, expected=expected, wait=wait)

    async def close(self) -> None:
        """End what is under way, and give the lease and all connections back."""
        self._closed = True
        if self._pid == os.getpid():
            await asyncio.to_thread(self._pool.shutdown)
        await asyncio.to_thread(self._gateway.close)

    async def __aenter__(self) -> AsyncGateway:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
