"""Redis, alone or as a cluster, by redis-py: layouts ``hash`` (the default), ``keys``, ``string``.

Read ``names.py`` and ``codec.py`` for what lies in a key, ``forms.py`` for how a block is read
and written, ``listing.py`` for how a collection is walked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrator.errors import Terminal

if TYPE_CHECKING:
    from migrator.ports import Store, StoreSettings


def open_store(settings: StoreSettings) -> Store:
    """Open a store behind ``redis://``, ``rediss://`` or ``rediscluster://``; connects later.

    Raises Terminal where the driver is missing, Refused for an option that is unknown.
    """
    try:
        import hiredis  # noqa: F401 - comes with the extra
        import orjson  # noqa: F401 - this, too
        import redis  # noqa: F401
    except ImportError:
        raise Terminal(
            "the Redis driver is not installed",
            where=settings.name,
            hint="pip install migrator[redis]",
        ) from None
    from migrator.stores.redis.store import RedisStore

    return RedisStore(settings)
