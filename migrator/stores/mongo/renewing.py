"""A password that is fetched anew for each login: the one place that leans on the driver's inside.

The driver takes a password once, when a client is made, and has no public way to be asked for
another: callbacks exist for OIDC alone, and a new client would end all sessions, cursors and change
streams of the old one. But it asks its credentials for the password at each login, so they are
replaced here by such as fetch it. Where a later driver keeps them elsewhere this is told, once, and
the first password stays: a login after it was changed is refused then, with a hint.
"""

from __future__ import annotations

from typing import Any

import structlog
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from migrator.ports import Secret

log = structlog.get_logger("migrator.mongo")

_READ, _HELD = "_credentials", "_PoolOptions__credentials"


def renew(client: MongoClient[RawBSONDocument], secret: Secret, where: str) -> bool:
    """Have each new connection of a client's pool fetch the password; False, and a warning, where
    this driver does not let itself be made to."""
    try:
        options = client.options.pool_options
        held = getattr(options, _READ)
        if held is None:
            return True  # nobody logs in
        made = _renewed(held, secret)
        setattr(options, _HELD, made)
        done = getattr(options, _READ) is made
    except (AttributeError, TypeError):
        done = False
    if not done:
        log.warning("a changed password is seen by the next start only", store=where)
    return done


def _renewed(held: Any, secret: Secret) -> Any:
    """The same credentials, whose password is asked for whenever it is read. Raises AttributeError
    or TypeError where the driver's are none that can be so."""

    class Renewed(type(held)):  # type: ignore[misc]
        @property
        def password(self) -> str:
            if self.cache is not None:
                self.cache.data = None  # what was made of the password before
            return secret()

    held.password, held.cache  # noqa: B018 - it must have them
    return Renewed(*held)


__all__ = ["renew"]
