"""Redis' lines of the contract: every layout, on one server and on a cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from migrator.model import value as v
from migrator.model.layouts import redis_native
from migrator.model.move import At, Layout
from migrator.model.value import Record, Value
from migrator.ports import Store, StoreSettings
from migrator.stores import redis
from migrator.testing.contract import ContractCase, FixedSchema
from tests.contract import meters, servers

_URLS = {"redis": servers.redis, "rediscluster": servers.rediscluster}


def _open(server: str) -> Callable[[Path], Store]:
    return lambda _: redis.open_store(StoreSettings("cache", _URLS[server]()))


def _break_copier(patch: pytest.MonkeyPatch) -> None:
    from migrator.model import json_text
    from migrator.stores.redis import codec

    write, read = json_text.to_json, codec.from_json
    patch.setattr(json_text, "to_json", lambda value: write(value).replace(b"kept", b"KEPT"))
    patch.setattr(codec, "from_json", lambda data: read(data.replace(b"KEPT", b"kept")))


def _case(server: str, layout: str) -> ContractCase:
    def at(name: str, rules: Sequence[str]) -> At:
        return At("cache", f"{servers.namespace()}{name}", rules, Layout(layout))

    return ContractCase(
        server,
        layout,
        open=_open(server),
        at=at,
        break_copier=_break_copier,
        module="redis",
        meter=meters.REDIS,
        exclusions=servers.tried_on("redis") if server == "rediscluster" else {},
    )


def game(key: Value, rounds: int) -> Record:
    """A game whose parts lie under types of Redis."""
    return {
        "firstPlayer": "ann",
        "rounds": [{"number": n, "moves": f"e{n} d{n}", "best": n / 4} for n in range(rounds)],
        "tags": v.Set(["a", "b"]),
        "scores": {"ann": 0.09793150749791057, "bob": -math.inf},
        "log": [{"id": f"{n + 1}-0", "values": {"move": f"e{n}"}} for n in range(rounds)],
        "note": "kept as it is",
        "wins": 2**53 + 1,
    }


_ODD: list[Record] = [
    {"rounds": [], "tags": v.Set(), "scores": {}, "log": []},
    {"rounds": [None, 1, "1", 1.0, [[]], {"": {}}, 2**70, "\ud800"]},
    {"tags": v.Set(["", "\0", "1", b"\xff", b"\x80\x04K", "é", "e\u0301"])},
    {"scores": {"": 0.0, "b": 1e-300, "c": -math.inf, "d": math.inf, "e": 2.0**53}},
    {"firstPlayer": "", "odd.name": "x", "[0]": b"\x8a", "": "{}", "\udc8a": "null"},
    {"note": b"\xff\0", "wins": -(2**63)},
]
_KEYS = ("a", "A", "1", "01", "", "ä", "a\u0308", "x:y", "%", "*", "[a]", b"\xff", b"\xfe", "#x")


def _native(server: str) -> ContractCase:
    def at(name: str, rules: Sequence[str]) -> At:
        key = f"{{{{{servers.namespace()}{name}:{{id}}}}}}"
        layout = redis_native(
            key,
            rounds=(f"{key}:rounds", "list of json"),
            tags=(f"{key}:tags", "set"),
            scores=(f"{key}:scores", "sorted set"),
            log=(f"{key}:log", "stream"),
            note=(f"{key}:note", "string"),
            wins=(f"{key}:wins", "integer"),
        )
        return At("cache", name, rules, layout)

    odd = [(f"odd-{i}", {**game("", 2), **change}) for i, change in enumerate(_ODD)]
    return replace(
        _case(server, "native"),
        at=at,
        break_copier=_break_native,
        schema=FixedSchema(game, odd, _KEYS),
    )


def _break_native(patch: pytest.MonkeyPatch) -> None:
    from migrator.stores.redis import types

    old = types.TYPES["hash"]

    def put(value: Value) -> object:
        _, held = old.put(value)
        held = [x.replace(b"kept", b"KEPT") for x in held]
        return [("HSET", *held)], held

    def copy(held: list[bytes]) -> Value:
        return old.copy([x.replace(b"KEPT", b"kept") for x in held])

    patch.setitem(types.TYPES, "hash", replace(old, put=put, copy=copy))  # type: ignore[arg-type]


CASES = [
    _case(server, layout)
    for server in ("redis", "rediscluster")
    for layout in ("hash", "keys", "string")
]
CASES += [_native("redis"), _native("rediscluster")]
