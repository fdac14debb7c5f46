"""Statements of PostgreSQL one behind the other, in one message to the server.

As psycopg's own pipeline, which asks the socket before and after each statement; values are made
and read by psycopg's adapters. A statement is prepared when it is first sent. Where the server has
forgotten it, or its tables have changed since, ``ByStep`` is raised, and all names are forgotten.
"""

from __future__ import annotations

import re
import select
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from secrets import token_hex
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from psycopg import OperationalError
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus

from migrator.stores.sql.errors import ByStep
from migrator.stores.sql.together import Answer, Asked

_MARK = re.compile(r"%(?:\((?P<name>[^)]+)\)s|s|%)")
_MOST = 500  # statements that one session keeps prepared
_FORGOTTEN = ("26000", "0A000")  # no such statement; its result is of another type now


@dataclass(frozen=True)
class _Text:
    """A statement as the server takes it, and the names of what is bound; empty for places."""

    query: bytes
    names: tuple[str, ...]

    def bound(self, given: Any) -> Sequence[Any]:
        """The values in the order of their places."""
        if given is None:
            return ()
        return [given[name] for name in self.names] if isinstance(given, dict) else given


@lru_cache(maxsize=1000)
def _text(text: str, *, bound: bool) -> _Text:
    names: list[str] = []

    def numbered(mark: re.Match[str]) -> str:
        if mark[0] == "%%":
            return "%"
        name = mark["name"] or f"%s {len(names)}"
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}"

    return _Text((_MARK.sub(numbered, text) if bound else text).encode(), tuple(names))


# A statement's text, and the types of what is bound in it.
_Key: TypeAlias = tuple[bytes, tuple[int, ...]]
_PREPARED: WeakKeyDictionary[Any, dict[_Key, bytes]] = WeakKeyDictionary()


def send(
    raw: Any, asked: Sequence[Asked], meanwhile: Callable[[], object] | None = None
) -> list[Answer]:
    """What each statement gives; ``meanwhile`` is done before that is read. Raises the driver's
    errors, of several the first; what follows it was passed over. After an error the session is to
    undo what it has begun."""
    wire, prepared = raw.pgconn, _PREPARED.setdefault(raw, {})
    formats = Transformer(raw)
    made: list[_Key | None] = []  # what each result is of: what was prepared, or a statement
    wire.enter_pipeline_mode()
    for text, given in asked:
        _put(wire, formats, prepared, _text(text, bound=given is not None), given, made)
    wire.pipeline_sync()
    try:
        if meanwhile is not None:
            meanwhile()
    finally:
        results = _results(wire)
        wire.exit_pipeline_mode()
    error = next((r for r in results if r.status == ExecStatus.FATAL_ERROR), None)
    if error is not None:
        _forget(prepared, made, results)
        told = error_from_result(error, encoding="utf-8")
        if told.sqlstate in _FORGOTTEN:
            prepared.clear()
            raise ByStep from told
        raise told
    answers: list[Answer] = []
    for key, result in zip(made, results, strict=True):
        if key is None:
            formats.set_pgresult(result)
            rows = formats.load_rows(0, result.ntuples, tuple) if result.nfields else ()
            answers.append(Answer(rows, result.command_tuples or 0))
    return answers


def _put(
    wire: Any, formats: Any, prepared: dict[_Key, bytes], text: _Text, given: Any,
    made: list[_Key | None],
) -> None:  # fmt: skip
    values = text.bound(given)
    bound = formats.dump_sequence(values, [PyFormat.AUTO] * len(values)) if values else []
    types = tuple(formats.types) if values else ()
    kinds = formats.formats if values else None
    key = text.query, types
    name = prepared.get(key)
    if name is None and len(prepared) < _MOST:
        # A name is never used again: the server may know it though it was forgotten here, or was
        # never known here, where sessions of others are handed on (a pooler).
        name = prepared[key] = b"migrator_" + token_hex(8).encode()
        wire.send_prepare(name, text.query, types)
        made.append(key)
    if name is None:
        wire.send_query_params(text.query, bound, param_types=types, param_formats=kinds)
    else:
        wire.send_query_prepared(name, bound, param_formats=kinds)
    made.append(None)


def _forget(
    prepared: dict[_Key, bytes], made: Sequence[_Key | None], results: Sequence[Any]
) -> None:
    """Forget what was not prepared, as something before it failed."""
    for key, result in zip(made, results, strict=False):
        if key is not None and result.status != ExecStatus.COMMAND_OK:
            prepared.pop(key, None)


def _results(wire: Any) -> list[Any]:
    """All results up to the end of a pipeline, once it is sent. Raises OperationalError where the
    server went away."""
    looking = select.poll()
    looking.register(wire.socket, select.POLLIN | select.POLLOUT)
    while wire.flush():  # what the socket did not take
        if any(event & ~select.POLLOUT for _, event in looking.poll()):
            wire.consume_input()  # it may wait for its answers to be read first
    looking.modify(wire.socket, select.POLLIN)
    results: list[Any] = []
    while True:
        while wire.is_busy():
            looking.poll()
            wire.consume_input()
        result = wire.get_result()
        if result is None:
            if wire.status != ConnStatus.OK:
                raise OperationalError("the connection is lost")
        elif result.status == ExecStatus.PIPELINE_SYNC:
            return results
        else:
            results.append(result)
