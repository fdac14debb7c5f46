"""The driver's errors in Migrator's words: may it succeed later, was it perhaps carried out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import pymongo
from bson.errors import BSONError
from pymongo import errors as e

from migrator.errors import DoesNotFit, MigratorError, Terminal, Transient

# Codes of the server: https://www.mongodb.com/docs/manual/reference/error-codes/
DUPLICATE = 11000
WRITE_SECONDS = 60
_NO_RIGHT = {13, 18}
_STEPPED_DOWN = {91, 189, 10107, 11600, 11602, 13435, 13436}
_TIMED_OUT = {50, 89, 202, 262}
_BUSY = {24, 46, 112, 251}
_UNSURE = {64, 79, 100}
_UNREACHED = {6, 7, 133, 9001}
# A server that was started anew, or took another's place, knows no cursor of before.
_LOST_CURSOR = {43, 234, 237}
_TOO_LARGE = {10334, 17419, 17420}
_REFUSED_VALUE = {2, 52, 53, 55, 66, 121, 15}


@contextmanager
def edge(where: str, *, key: object = None, writing: bool = False) -> Iterator[None]:
    """Translate whatever the driver raises inside.

    A write is given up by the server itself after a minute (maxTimeMS), so that none outlives
    its caller for longer (R6).
    """
    try:
        with pymongo.timeout(WRITE_SECONDS) if writing else nullcontext():
            yield
    except MigratorError:
        raise
    except (e.PyMongoError, BSONError) as error:
        raise translated(error, where, key=key, writing=writing) from error


def translated(
    error: Exception, where: str, *, key: object = None, writing: bool = False
) -> MigratorError:
    """The Migrator error for one of the driver's. A write of unknown fate is ``unknown``."""
    match error:
        case e.BulkWriteError():
            return _bulk(error, where, key)
        case e.DocumentTooLarge():
            return _too_large(where, key)
        case e.ServerSelectionTimeoutError():
            return Transient(
                f"can't reach MongoDB: {_short(error)}",
                where=where,
                hint="check that it runs, the URL, and TLS options; then try again",
            )
        case e.WriteConcernError():
            return _undurable(_short(error), where)
        case e.OperationFailure():
            return by_code(error.code or 0, _short(error), where, key=key, writing=writing)
        case e.ConnectionFailure() | e.WaitQueueTimeoutError():
            return Transient(
                f"the connection failed: {_short(error)}",
                where=where,
                unknown=writing and not isinstance(error, e.WaitQueueTimeoutError),
                hint="it is tried again; look at the server's log if it goes on",
            )
        case e.ConfigurationError() | e.InvalidURI():
            return Terminal(_short(error), where=where, hint="mend the store's url or options")
    return Terminal(_short(error), where=where)


def by_code(
    code: int, text: str, where: str, *, key: object = None, writing: bool = False
) -> MigratorError:
    """The error for one of the server's codes."""
    if code in _NO_RIGHT:
        return Terminal(
            f"MongoDB refused the login or the right: {text}",
            where=where,
            hint="check user, password, authSource and the user's roles",
        )
    if code in _STEPPED_DOWN:
        return Transient(
            f"the primary stepped down: {text}", where=where, unknown=writing, hint="it is retried"
        )
    if code in _TIMED_OUT or code in _UNSURE:
        return Transient(
            f"no answer in time: {text}",
            where=where,
            unknown=writing,
            hint="it is tried again; smaller batches help a slow server",
        )
    if code in _UNREACHED:
        return Transient(
            f"a server behind it can't be reached: {text}",
            where=where,
            unknown=writing,
            hint="it is tried again; look at the servers if it goes on",
        )
    if code in _LOST_CURSOR:
        return Transient(f"the cursor is gone: {text}", where=where, hint="it is read anew")
    if code in _BUSY:
        return Transient(f"the server was busy: {text}", where=where, hint="it is retried")
    if code in _TOO_LARGE:
        return _too_large(where, key)
    if key is not None and code in _REFUSED_VALUE:
        return DoesNotFit(
            f"MongoDB does not take it: {text}",
            key=key,
            where=where,
            hint="see the collection's validator, or set oversize='quarantine' on the move",
        )
    return Terminal(f"MongoDB refused it: {text}", where=where)


def _too_large(where: str, key: object) -> DoesNotFit:
    return DoesNotFit(
        "the document is over 16 MB", key=key, where=where, hint="move its large part out"
    )


def _bulk(error: e.BulkWriteError, where: str, key: object) -> MigratorError:
    details: Mapping[str, Any] = error.details or {}
    for found in details.get("writeErrors", ()):
        return by_code(found["code"], found["errmsg"], where, key=key, writing=True)
    for found in details.get("writeConcernErrors", ()):
        return _undurable(found.get("errmsg"), where)
    return Terminal(_short(error), where=where)


def _undurable(why: object, where: str) -> Transient:
    """Written on the primary; whether it stays is what the server could not say."""
    return Transient(f"not yet durable: {why}", where=where, unknown=True, hint="retried")


def _short(error: Exception) -> str:
    """The driver's text without the reply it appends, on one line."""
    text = str(error).split(", full error:")[0].split(", Timeout:")[0]
    return " ".join(text.split())[:400]
