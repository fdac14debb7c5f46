"""A note on Redis: a key of Migrator's own, beside its registry."""

from __future__ import annotations

from migrator.errors import Transient
from migrator.stores.redis.wire import Command, Unit, Wire

_TRIES = 20


class RedisNote:
    """Changed in a MULTI that watches it, and in as many replicas as any other write: one that took
    over without it would tell of an older reign."""

    def __init__(self, wire: Wire, name: str) -> None:
        self._wire = wire
        self._key = f"_migrator:epoch:{name}".encode()

    def read(self) -> str | None:
        ((held,),) = self._wire.run([Unit(self._key, [("GET", self._key)])])
        if isinstance(held, Exception):
            raise self._wire.refusal(held)
        return _text(held)

    def change(self, old: str | None, new: str | None) -> bool:
        key = self._key
        for _ in range(_TRIES):
            with self._wire.watching(key) as session:
                (held,) = session.ask(("GET", key))
                # What is there by now may be of a sending whose replicas had not told of it: only
                # what this connection writes does it wait for.
                if _text(held) not in (old, new):
                    return False
                put: Command = ("UNLINK", key) if new is None else ("SET", key, new.encode())
                if session.commit([put]) is not None:
                    return True
        raise Transient("its epoch was changed by others all the time", where=self._wire.where)


def _text(held: bytes | None) -> str | None:
    return None if held is None else held.decode()
