"""DynamoDB, by boto3: layouts ``item`` (the default) and ``item-collection``.

Read ``item.py`` for how a block lies in one item, ``gathered.py`` for how it lies in several,
``codec.py`` for how values become attribute values, ``wire.py`` for what travels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrator.errors import Terminal

if TYPE_CHECKING:
    from migrator.ports import Store, StoreSettings


def open_store(settings: StoreSettings) -> Store:
    """Open a store behind ``dynamodb://``; connects at the first request.

    Raises Terminal where the driver is missing or refuses the settings, Refused for an option
    that is unknown.
    """
    try:
        import boto3  # noqa: F401
    except ImportError:
        raise Terminal(
            "the DynamoDB driver is not installed",
            where=settings.name,
            hint="pip install migrator[dynamodb]",
        ) from None
    from migrator.stores.dynamodb.store import DynamoStore

    return DynamoStore(settings)
