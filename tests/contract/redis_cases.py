"""Redis' lines of the contract: every layout, on one server and on a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from migrator.model.move import At, Layout
from migrator.ports import Store, StoreSettings
from migrator.stores import redis
from migrator.testing.contract import ContractCase
from tests.conftest import server_url

_DATABASE = 9


def _open(server: str) -> Callable[[Path], Store]:
    def open_(_: Path) -> Store:
        options = {"database": _DATABASE} if server == "redis" else {}
        return redis.open_store(StoreSettings("cache", server_url(server), options))

    return open_


def _break_copier(patch: pytest.MonkeyPatch) -> None:
    from migrator.stores.redis import codec

    write, read = codec.to_json, codec.from_json
    patch.setattr(codec, "to_json", lambda value: write(value).replace(b"kept", b"KEPT"))
    patch.setattr(codec, "from_json", lambda data: read(data.replace(b"KEPT", b"kept")))


def _case(server: str, layout: str) -> ContractCase:
    def at(name: str, rules: Sequence[str]) -> At:
        return At("cache", f"{name}_{os.getpid()}", rules, Layout(layout))

    return ContractCase(
        server, layout, open=_open(server), at=at, break_copier=_break_copier, module="redis"
    )


CASES = [
    _case(server, layout)
    for server in ("redis", "rediscluster")
    for layout in ("hash", "keys", "string")
]
