"""MongoDB, by pymongo: layouts ``document`` (the default) and ``flat``.

Read ``stored.py`` for how a block lies in a document, ``codec.py`` for how values become BSON,
``paging.py`` for how a collection is walked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrator.errors import Terminal

if TYPE_CHECKING:
    from migrator.ports import Store, StoreSettings


def open_store(settings: StoreSettings) -> Store:
    """Open a store behind ``mongodb://`` or ``mongodb+srv://``; connects at the first request.

    Raises Terminal where the driver is missing or refuses the settings, Refused for an option
    that is unknown.
    """
    try:
        import pymongo  # noqa: F401
    except ImportError:
        raise Terminal(
            "the MongoDB driver is not installed",
            where=settings.name,
            hint="pip install migrator[mongo]",
        ) from None
    from migrator.stores.mongo.store import MongoStore

    return MongoStore(settings)
