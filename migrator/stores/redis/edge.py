"""The driver's errors in Migrator's words: may it succeed later, was it perhaps carried out."""

from __future__ import annotations

import ssl

from redis import exceptions as e

from migrator.errors import DoesNotFit, MigratorError, Terminal, Transient

# What a server begins its refusals with: https://redis.io/docs/latest/develop/reference/
_LATER = {
    "LOADING": "Redis is still loading its data",
    "BUSY": "a script keeps Redis busy",
    "READONLY": "this server is a replica and takes no writes",
    "MASTERDOWN": "the replica has lost its master",
    "CLUSTERDOWN": "the cluster is down",
    "TRYAGAIN": "a slot is being moved",
    "MOVED": "the slot lies on another node now",
    "ASK": "the slot is being moved to another node",
    "NOREPLICAS": "too few replicas are connected",
    "MISCONF": "Redis can't write its data to disk",
}
_NO_RIGHT = {"NOAUTH", "WRONGPASS", "NOPERM", "DENIED"}


def unreachable(error: Exception, where: str) -> MigratorError:
    """The error for a connection that could not be made: nothing was sent."""
    match error:
        case MigratorError():
            return error
        case e.AuthenticationError() | e.AuthorizationError():
            return _no_right(error, where)
        case e.MaxConnectionsError():
            return Transient("all connections are in use", where=where, hint="raise maxPoolSize")
        case e.ResponseError() if not isinstance(error, e.BusyLoadingError):
            return refused(error, where)
    if isinstance(error.__context__, ssl.SSLCertVerificationError):
        return Terminal(
            f"can't reach Redis: {_short(error)}",
            where=where,
            hint="check tlsCAFile, and whether the server's certificate is for this name",
        )
    return Transient(
        f"can't reach Redis: {_short(error)}",
        where=where,
        hint="check that it runs, the url, and TLS options; then try again",
    )


def broken(error: Exception, where: str, *, writing: bool) -> MigratorError:
    """The error for a connection that broke, or an answer that did not come in time."""
    late = isinstance(error, (e.TimeoutError, TimeoutError))
    return Transient(
        f"{'no answer in time' if late else 'the connection failed'}: {_short(error)}",
        where=where,
        unknown=writing,
        hint="it is tried again; look at the server's log if it goes on",
    )


def refused(error: Exception, where: str, *, key: object = None, name: str = "") -> MigratorError:
    """The error for what the server said; ``key`` and ``name`` are the block's."""
    text = _short(error)
    word = _word(error, text)
    of = f"{name}: " if name else ""
    if word in _LATER:
        return Transient(f"{of}{_LATER[word]}: {text}", where=where, hint="it is tried again")
    if word in _NO_RIGHT:
        return _no_right(error, where)
    if word == "OOM":
        return Terminal(
            f"{of}Redis is at its maxmemory and takes no more: {text}",
            where=where,
            hint="give it more memory (CONFIG SET maxmemory ...), then go on with the same command",
        )
    if word == "WRONGTYPE":
        return Terminal(
            f"{of}the key holds a value of another type than its layout has",
            where=where,
            hint="choose the layout it was written in, or move that key away",
        )
    if "unknown command" in text or "unknown subcommand" in text:
        newer = "Redis 7.4 or Valkey 9" if "HPEXPIRE" in text.upper() else "Redis 7.0"
        hint = f"{newer}, or a newer one, is needed"
        return Terminal(f"Redis refused it: {text}", where=where, hint=hint)
    if key is not None and "maximum allowed size" in text:
        return DoesNotFit(f"{of}Redis does not take it: {text}", key=key, where=where)
    return Terminal(f"{of}Redis refused it: {text}", where=where)


def _word(error: Exception, text: str) -> str:
    """What the refusal began with; the driver takes some words off and keeps them as a class."""
    classes: tuple[tuple[type[Exception], str], ...] = (
        (e.MovedError, "MOVED"),
        (e.AskError, "ASK"),
        (e.TryAgainError, "TRYAGAIN"),
        (e.MasterDownError, "MASTERDOWN"),
        (e.ClusterDownError, "CLUSTERDOWN"),
        (e.BusyLoadingError, "LOADING"),
        (e.ReadOnlyError, "READONLY"),
        (e.OutOfMemoryError, "OOM"),
        (e.NoPermissionError, "NOPERM"),
        (e.AuthenticationError, "NOAUTH"),
    )
    for kind, word in classes:
        if isinstance(error, kind):
            return word
    return text.partition(" ")[0]


def later(error: Exception) -> bool:
    """Whether the same may be done later, or on another server."""
    return _word(error, str(error)) in _LATER


def forbidden(error: Exception) -> bool:
    """Whether it is the command itself that this user or server does not have."""
    text = str(error)
    return _word(error, text) in _NO_RIGHT or "unknown command" in text


def moved(error: Exception) -> bool:
    """Whether the topology that this request went by is out of date."""
    return _word(error, str(error)) in ("MOVED", "ASK", "READONLY", "CLUSTERDOWN")


def _no_right(error: Exception, where: str) -> Terminal:
    return Terminal(
        f"Redis refused the login or the right: {_short(error)}",
        where=where,
        hint="check user, password, and the user's rights (ACL)",
    )


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
