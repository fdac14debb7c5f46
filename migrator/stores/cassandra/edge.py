"""The driver's errors in Migrator's words: may it succeed later, was it perhaps carried out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import cassandra as e
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.protocol import ErrorMessage

from migrator.errors import DoesNotFit, MigratorError, Terminal, Transient
from migrator.model.value import Value, show

# An error of newer servers that the driver has no class for.
_CAS_UNKNOWN = 0x1700
_LATER = ("overloaded", "bootstrapping", "is not ready")
_TOO_LARGE = ("too large", "exceeds", "maximum size", "larger than")
# What is wrong with the table, and so with every block.
_OF_THE_TABLE = ("does not exist", "undefined column", "unknown", "unconfigured")
_NO_COLUMN = ("undefined column", "unknown identifier")


class NoColumn(Terminal):
    """A statement named a column that the table does not have, and was not carried out."""


@contextmanager
def edge(where: str, *, writing: bool = False, key: Value = None) -> Iterator[None]:
    """Translate what the driver raises. A write of unknown fate is ``unknown``.

    ``key`` is that of the one block which a write concerns.
    """
    try:
        yield
    except MigratorError:
        raise
    except (
        e.DriverException,
        NoHostAvailable,
        ConnectionException,
        ErrorMessage,
        OSError,
    ) as error:
        raise translated(error, where, writing=writing, key=key) from error


def translated(
    error: Exception, where: str, *, writing: bool = False, key: Value = None
) -> MigratorError:
    """The Migrator error for one of the driver's."""
    text = short(error)
    match error:
        case NoHostAvailable():
            return _no_host(error, where, writing)
        case e.AuthenticationFailed() | e.Unauthorized():
            return _no_right(text, where)
        case e.Unavailable():
            return Transient(
                f"too few replicas are alive: {text}",
                where=where,
                hint="bring the nodes up, or choose a weaker consistency in the store's options",
            )
        case e.ReadTimeout() | e.ReadFailure():
            return Transient(
                f"the read was not answered: {text}", where=where, hint="it is retried"
            )
        case e.WriteTimeout() | e.WriteFailure() | e.OperationTimedOut():
            return Transient(
                f"no answer in time: {text}",
                where=where,
                unknown=writing,
                hint="it is tried again, with the same write time; smaller pages help a slow node",
            )
        case ErrorMessage() if error.code == _CAS_UNKNOWN:
            return Transient(
                f"a lightweight transaction has no known end: {text}",
                where=where,
                unknown=writing,
                hint="what lies there is read before anything is sent again",
            )
        case ConnectionException() | OSError():
            return Transient(
                f"the connection failed: {text}", where=where, unknown=writing, hint="it is retried"
            )
        case e.InvalidRequest() if _has(text, _NO_COLUMN):
            return NoColumn(
                f"Cassandra refused it: {text}", where=where,
                hint="see whether the table is as it was made",
            )  # fmt: skip
        case e.InvalidRequest() if key is not None and not _has(text, _OF_THE_TABLE):
            return DoesNotFit(
                f"{show(key)[:100]}: Cassandra does not take it: {text}",
                key=key,
                where=where,
                hint="change the block, or set oversize='quarantine' on the move",
            )
        case e.InvalidRequest() if _has(text, _TOO_LARGE):
            return Terminal(
                f"Cassandra refused it as too large: {text}",
                where=where,
                hint="choose a layout of smaller cells, or smaller pages",
            )
    if _has(text, _LATER):
        return Transient(f"the node was busy: {text}", where=where, hint="it is retried")
    return Terminal(
        f"Cassandra refused it: {text}",
        where=where,
        hint="see whether the table is as it was made",
    )


def _has(text: str, words: tuple[str, ...]) -> bool:
    return any(word in text.lower() for word in words)


def _no_host(error: NoHostAvailable, where: str, writing: bool) -> MigratorError:
    causes = list(error.errors.values()) if isinstance(error.errors, dict) else []
    for cause in causes:
        if isinstance(cause, (e.AuthenticationFailed, e.Unauthorized)):
            return _no_right(short(cause), where)
    # An error of a connection that was open may have come after the request was sent.
    sent = any(isinstance(c, (e.OperationTimedOut, ConnectionException)) for c in causes)
    told = "; ".join(short(cause) for cause in causes[:3]) or short(error)
    return Transient(
        f"can't reach Cassandra: {told}",
        where=where,
        unknown=writing and sent,
        hint="check that it runs, the URL, and TLS options; then try again",
    )


def _no_right(text: str, where: str) -> Terminal:
    return Terminal(
        f"Cassandra refused the login or the right: {text}",
        where=where,
        hint="check user and password, and the role's rights on the keyspace",
    )


def short(error: Exception) -> str:
    """The driver's text on one line."""
    return " ".join(str(error).split())[:300] or type(error).__name__
