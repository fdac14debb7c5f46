"""The log on stderr: set up here and nowhere else."""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from typing import Any

import structlog

from migrator.render.text import shown


class _Stderr:
    """Whatever ``sys.stderr`` is now: progress bars put themselves in its place for a while."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def configure(level: str, format: str) -> None:
    """Set up the log: ``level`` as in logging, ``format`` is text or json."""
    renderer: Any
    if format == "json":
        renderer = structlog.processors.JSONRenderer()
    else:
        renderer = structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), pad_event_to=0, exception_formatter=_plain
        )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper("iso", utc=True),
            _escape,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(_Stderr()),  # type: ignore[arg-type]
        cache_logger_on_first_use=False,
    )
    # Libraries log by way of the standard module; only what is serious is worth a line here.
    logging.basicConfig(level=max(logging.ERROR, getattr(logging, level.upper())), force=True)


def _escape(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    return {key: shown(item) if isinstance(item, str) else item for key, item in event.items()}


def _plain(out: Any, info: Any) -> None:
    structlog.dev.plain_traceback(out, info)
