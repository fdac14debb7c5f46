"""The drivers' errors in the words of Migrator: transient, terminal, or one value too much.

Each system is asked for its own code (SQLSTATE, error number, result code); texts are looked
at only where a driver gives nothing else. Messages keep the server's first line, which names
the constraint or column but no password.
"""

from __future__ import annotations

import re
import sqlite3
import ssl
from enum import Enum

from sqlalchemy import ClauseElement, TableClause, exc
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.sql import visitors

from migrator.errors import DamagedBlock, DoesNotFit, MigratorError, Terminal, Transient


class Sort(Enum):
    """What an error means for the caller."""

    AGAIN = "again"
    LOST = "lost"
    UNFIT = "unfit"
    UNIQUE = "unique"
    DAMAGED = "damaged"
    FOREVER = "forever"


_PASSWORD = re.compile(r"(://[^:/@\s]*:)[^@\s]*@|(password=)\S+", re.IGNORECASE)

_HINTS = {
    "auth": "check user and password of the store; the password is fetched anew each time",
    "database": "create the database, or correct its name in the store's url",
    "table": "check the name; a target's tables are made by the phase prepared",
    "readonly": "connect to the primary, or to a file and folder that may be written",
    "disk": "free space on the server, then run the same command again",
    "grant": "grant the store's user the right that is missing",
    "trigger": "SET GLOBAL log_bin_trust_function_creators = ON, or GRANT SUPER ON *.* TO the "
    "store's user: it may not make triggers while the server keeps a binary log",
    "tls": "check the options sslmode, sslrootcert, sslcert and sslkey, and the server's own name",
    "unreachable": "check host, port and network; scripts/services up starts the test servers",
    "damaged": "a page on the server's disk is damaged, its log names it: restore the table",
    "index": "an index on the server is damaged: rebuild it (REINDEX TABLE), then run the same "
    "command again; nothing was skipped",
    "crashed": "the table is damaged: see CHECK TABLE and the server's log, repair or restore it, "
    "then run the same command again; nothing was skipped",
    "file": "the file is damaged: see PRAGMA integrity_check, restore it, then run the same "
    "command again; nothing was skipped",
    "io": "the server can't read its own disk: see its log and the disk, then run the same command "
    "again; nothing was skipped",
    "lock": "somebody holds a lock; it is tried again, see also the option lock_timeout",
    "idle": "the server ends sessions that say nothing for so long: see whether this process stood "
    "still, and the server's settings of time-outs; it is tried again",
    "time": "raise the option statement_timeout of the store, or take smaller pages",
}

# SQLSTATE prefixes, longest first: what it means and which hint helps.
_STATES: dict[str, tuple[Sort, str]] = {
    "08": (Sort.LOST, "unreachable"),
    "57P01": (Sort.LOST, "unreachable"),
    "57P02": (Sort.LOST, "unreachable"),
    "57P03": (Sort.AGAIN, "unreachable"),
    # The server ended a session: idle, idle in a transaction, or in one for too long.
    "57P05": (Sort.LOST, "idle"),
    "25P03": (Sort.LOST, "idle"),
    "25P04": (Sort.LOST, "idle"),
    "57014": (Sort.AGAIN, "time"),
    "40003": (Sort.LOST, ""),  # the server does not know what became of the statement
    "40": (Sort.AGAIN, "lock"),
    "55P03": (Sort.AGAIN, "lock"),
    "53300": (Sort.AGAIN, "unreachable"),
    "53200": (Sort.AGAIN, ""),
    "53100": (Sort.FOREVER, "disk"),
    "25006": (Sort.FOREVER, "readonly"),
    "28": (Sort.FOREVER, "auth"),
    "3D000": (Sort.FOREVER, "database"),
    "42P01": (Sort.FOREVER, "table"),
    "3F000": (Sort.FOREVER, "table"),
    "42501": (Sort.FOREVER, "grant"),
    "21000": (Sort.UNFIT, ""),  # two rows of one statement are one to the collation
    "22": (Sort.UNFIT, ""),
    "23505": (Sort.UNIQUE, ""),
    "23": (Sort.UNFIT, ""),
    "54000": (Sort.UNFIT, ""),
    "58030": (Sort.FOREVER, "io"),
    "XX001": (Sort.DAMAGED, "damaged"),
    "XX002": (Sort.FOREVER, "index"),
}

_NUMBERS: dict[int, tuple[Sort, str]] = {
    1040: (Sort.AGAIN, "unreachable"),
    1203: (Sort.AGAIN, "unreachable"),
    2002: (Sort.AGAIN, "unreachable"),
    2003: (Sort.AGAIN, "unreachable"),
    2005: (Sort.AGAIN, "unreachable"),
    2006: (Sort.LOST, "unreachable"),
    2013: (Sort.LOST, "unreachable"),
    2014: (Sort.LOST, "unreachable"),
    1053: (Sort.LOST, "unreachable"),
    1927: (Sort.LOST, "unreachable"),
    4031: (Sort.LOST, "idle"),
    0: (Sort.LOST, "unreachable"),
    1205: (Sort.AGAIN, "lock"),
    1213: (Sort.AGAIN, "lock"),
    1020: (Sort.AGAIN, "lock"),
    1317: (Sort.AGAIN, "time"),  # KILL QUERY, as 57014
    1969: (Sort.AGAIN, "time"),
    3024: (Sort.AGAIN, "time"),
    1045: (Sort.FOREVER, "auth"),
    1698: (Sort.FOREVER, "auth"),
    1044: (Sort.FOREVER, "grant"),
    1142: (Sort.FOREVER, "grant"),
    1227: (Sort.FOREVER, "grant"),
    1419: (Sort.FOREVER, "trigger"),
    1049: (Sort.FOREVER, "database"),
    1146: (Sort.FOREVER, "table"),
    1290: (Sort.FOREVER, "readonly"),
    1792: (Sort.FOREVER, "readonly"),
    1836: (Sort.FOREVER, "readonly"),
    3: (Sort.FOREVER, "disk"),
    28: (Sort.FOREVER, "disk"),
    1021: (Sort.FOREVER, "disk"),
    1114: (Sort.FOREVER, "disk"),
    **dict.fromkeys({1034, 1035, 1194, 1195, 1712, 1877}, (Sort.FOREVER, "crashed")),
    1062: (Sort.UNIQUE, ""),
    1586: (Sort.UNIQUE, ""),
    **dict.fromkeys(
        {1048, 1118, 1153, 1216, 1217, 1264, 1265, 1292, 1364, 1366, 1406, 1411, 1441, 1451, 1452}
        | {1690, 3140, 3819, 4025},
        (Sort.UNFIT, ""),
    ),
}

_CODES: dict[str, tuple[Sort, str]] = {
    "SQLITE_BUSY": (Sort.AGAIN, "lock"),
    "SQLITE_LOCKED": (Sort.AGAIN, "lock"),
    "SQLITE_FULL": (Sort.FOREVER, "disk"),
    "SQLITE_READONLY": (Sort.FOREVER, "readonly"),
    "SQLITE_CANTOPEN": (Sort.FOREVER, "readonly"),
    "SQLITE_PERM": (Sort.FOREVER, "readonly"),
    "SQLITE_NOTADB": (Sort.FOREVER, ""),
    "SQLITE_CORRUPT": (Sort.FOREVER, "file"),
    "SQLITE_TOOBIG": (Sort.UNFIT, ""),
    "SQLITE_MISMATCH": (Sort.UNFIT, ""),
    "SQLITE_CONSTRAINT_UNIQUE": (Sort.UNIQUE, ""),
    "SQLITE_CONSTRAINT_PRIMARYKEY": (Sort.UNIQUE, ""),
    "SQLITE_CONSTRAINT": (Sort.UNFIT, ""),
}


class ByStep(Exception):
    """What was begun is undone, and is to be done again statement by statement."""


class Edge:
    """Translate what the drivers raise inside; ``writing``: a lost connection leaves doubt;
    ``by_key``: blocks are asked for, of which others may lie on better pages."""

    __slots__ = ("_by_key", "_where", "_writing")

    def __init__(self, where: str, *, writing: bool = False, by_key: bool = False) -> None:
        self._where = where
        self._writing = writing
        self._by_key = by_key

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, MigratorError):
            return
        if isinstance(error, _OURS) or _from_driver(error):
            raise translate(
                error, self._where, writing=self._writing, by_key=self._by_key
            ) from error


edge = Edge


_OURS = (exc.SQLAlchemyError, sqlite3.Error, UnicodeError, OverflowError)


def _from_driver(error: Exception) -> bool:
    """Whether a driver raised it past SQLAlchemy, as COPY does."""
    return type(error).__module__.partition(".")[0] in ("psycopg", "pymysql")


def note_tables(context: ExceptionContext) -> None:
    """Note with an error which tables its statement is of: the server's words may name none."""
    compiled = getattr(context.execution_context, "compiled", None)
    statement, error = getattr(compiled, "statement", None), context.sqlalchemy_exception
    if error is not None and isinstance(statement, ClauseElement):
        found = (e for e in visitors.iterate(statement) if isinstance(e, TableClause))
        error.add_note(" and ".join(dict.fromkeys(table.name for table in found)))


def _of_tables(error: Exception) -> str:
    """The tables that were noted with an error, with a word before them; empty for none."""
    noted = " and ".join(filter(None, getattr(error, "__notes__", [])))
    return f" of table {noted}" if noted else ""


def translate(
    error: Exception, where: str, *, writing: bool = False, by_key: bool = False
) -> MigratorError:
    """The error of ours for one of SQLAlchemy or a driver."""
    if isinstance(error, exc.TimeoutError):
        return Transient(
            "no connection became free", where=where, hint="raise the option pool_size"
        )
    if isinstance(error, (UnicodeError, OverflowError)):
        return DoesNotFit(f"the driver can't send a value: {first_line(error)}", where=where)
    origin = error.orig if isinstance(error, exc.DBAPIError) else error
    cause = origin if isinstance(origin, Exception) else error
    if isinstance(cause, MigratorError):
        return cause
    sort, hint = classify(cause)
    text = _HINTS.get(hint, "")
    message = first_line(cause)
    match sort:
        case Sort.AGAIN:
            return Transient(message, where=where, hint=text)
        case Sort.LOST:
            return Transient(message, where=where, hint=text, unknown=writing)
        case Sort.UNFIT | Sort.UNIQUE:
            return DoesNotFit(message, where=where)
        case Sort.DAMAGED if by_key:
            # Of several blocks that were asked for others may lie elsewhere.
            of = _of_tables(error)
            told = f"{message} (a page{of})" if of else message
            return DamagedBlock(told, where=where, hint=text)
        case Sort.DAMAGED:
            # Which blocks lie there nobody can tell: passed over, they would be missing unseen.
            return Terminal(
                f"the pages{_of_tables(error)} can't be gone through: {message}", where=where,
                hint=f"{text} from a copy, then run the same command again; nothing was skipped",
            )  # fmt: skip
    return Terminal(message, where=where, hint=text)


def is_unique(error: BaseException | None) -> bool:
    """Whether the server refused a second row with the same unique value."""
    cause = error.orig if isinstance(error, exc.DBAPIError) else error
    return isinstance(cause, Exception) and classify(cause)[0] is Sort.UNIQUE


def is_refused(error: BaseException) -> bool:
    """Whether the server refused a row, for a unique value or for what its table does not take."""
    return _from_server(error) in (Sort.UNIQUE, Sort.UNFIT)


def may_go_on(error: BaseException) -> bool:
    """Whether a session can be used again once its transaction is undone."""
    sort = _from_server(error)
    ours = isinstance(error, (MigratorError, ByStep))
    return ours or (sort is not None and sort is not Sort.LOST)


def _from_server(error: BaseException) -> Sort | None:
    """What an error of the server's means; None for one of the driver's own."""
    if not isinstance(error, Exception) or not _from_driver(error):
        return None
    number = error.args[0] if error.args else None
    if isinstance(number, int) or isinstance(getattr(error, "sqlstate", None), str):
        return classify(error)[0]
    return None


def classify(cause: Exception) -> tuple[Sort, str]:
    """What a driver's error means, and the name of the hint that helps."""
    if isinstance(getattr(cause, "original_exception", None), ssl.SSLCertVerificationError):
        return Sort.FOREVER, "tls"  # PyMySQL has the number of a server that is not reached for it
    number = cause.args[0] if cause.args else None
    if isinstance(number, int):  # MySQL's number says more than the SQLSTATE it also gives
        return _NUMBERS.get(number, (Sort.FOREVER, ""))
    state = getattr(cause, "sqlstate", None)
    if isinstance(state, str):
        return _by_prefix(_STATES, state, (Sort.FOREVER, ""))
    name = getattr(cause, "sqlite_errorname", None)
    if isinstance(name, str) and name != "SQLITE_ERROR":
        return _by_prefix(_CODES, name, (Sort.FOREVER, ""))
    return _by_text(cause)


def _by_prefix(
    table: dict[str, tuple[Sort, str]], code: str, default: tuple[Sort, str]
) -> tuple[Sort, str]:
    for end in range(len(code), 1, -1):
        if code[:end] in table:
            return table[code[:end]]
    return default


def _by_text(cause: Exception) -> tuple[Sort, str]:
    text = str(cause).lower()
    for words, sort, hint in (
        ("authentication failed", Sort.FOREVER, "auth"),
        ("no password supplied", Sort.FOREVER, "auth"),
        ("no pg_hba.conf entry", Sort.FOREVER, "auth"),
        ("pg_hba.conf rejects", Sort.FOREVER, "tls" if "no encryption" in text else "auth"),
        # What libpq says of a server that died, where TLS was on.
        ("unexpected eof", Sort.LOST, "unreachable"),
        ("ssl connection has been closed", Sort.LOST, "unreachable"),
        ("ssl syscall error", Sort.LOST, "unreachable"),
        ("certificate", Sort.FOREVER, "tls"),
        ("private key file", Sort.FOREVER, "tls"),
        ("does not support ssl", Sort.FOREVER, "tls"),
        ("failed: ssl error", Sort.FOREVER, "tls"),
        ('role "', Sort.FOREVER, "auth"),
        ('database "', Sort.FOREVER, "database"),
        ("no such table", Sort.FOREVER, "table"),
        ("no such column", Sort.FOREVER, "table"),
        ("bind", Sort.UNFIT, ""),
        ("nul (0x00)", Sort.UNFIT, ""),
    ):
        if words in text:
            return sort, hint
    operational = any(kind.__name__ == "OperationalError" for kind in type(cause).__mro__)
    if operational and not isinstance(cause, sqlite3.Error):
        return Sort.LOST, "unreachable"
    return Sort.FOREVER, ""


def first_line(error: BaseException) -> str:
    """The server's own words in one line: no details with values, no password of a URL."""
    args = error.args
    text = str(args[1]) if len(args) > 1 and isinstance(args[0], int) else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    line = re.sub(r"^Duplicate entry '.*' for key", "Duplicate entry for key", lines[0])
    return _PASSWORD.sub(lambda m: f"{m[1]}***@" if m[1] else f"{m[2]}***", line)
