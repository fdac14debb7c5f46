"""Opens what the settings name: the only place that knows which module belongs to a URL.

Store modules register themselves by URL scheme as entry points of the group
``migrator.stores``, so a store of another package needs no change here.
"""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING

import structlog

from migrator.errors import Refused, Terminal
from migrator.model.url import scheme
from migrator.ports import Sibling, Store, StoreFactory
from migrator.settings import Settings

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

GROUP = "migrator.stores"


@cache
def _offered() -> EntryPoints:
    """All store modules that are installed; to find them means to read what is said of each
    installed package."""
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def schemes() -> tuple[str, ...]:
    """The URL schemes that the installed store modules take."""
    return tuple(sorted(_offered().names))


def factory(url_scheme: str, where: str = "") -> StoreFactory:
    """The opener for a scheme; ``postgresql+psycopg`` falls back to ``postgresql``.

    Raises Refused for a scheme that nobody takes, Terminal where its module does not load.
    """
    for name in (url_scheme, url_scheme.partition("+")[0]):
        for point in _offered().select(name=name):
            try:
                found: StoreFactory = point.load()
            except (ImportError, AttributeError) as error:
                raise Terminal(
                    f"the store module {point.value} does not load: {error}", where=where
                ) from error
            return found
    raise Refused(
        f"no store takes URLs that begin with {url_scheme}://",
        where=where,
        hint=f"known: {', '.join(schemes())}",
    )


def open_store(
    settings: Settings, name: str, sibling: Sibling | None = None, *, application: bool = False
) -> Store:
    """Open one store anew; ``sibling`` is how it reaches others of its environment.

    Raises Refused for an unknown store or scheme, and what the store's own module raises.
    """
    store = settings.store(name)
    opener = factory(scheme(store.url), f"store {name}")
    return opener(replace(store, sibling=sibling, application=application))


def _log_as_a_library() -> None:
    """Hand the log to the module ``logging``, unless somebody has said where it goes: as it comes,
    structlog writes to the standard output of whose process it is."""
    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.contextvars.merge_contextvars,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


class Stores:
    """The open stores of an environment, each opened once; for one process.

    A forked child opens its own: two processes on one connection would mix up its answers.
    ``application``: their writes are an application's, which a fence stops.
    """

    def __init__(self, settings: Settings, *, application: bool = False) -> None:
        _log_as_a_library()
        self.settings = settings
        self._application = application
        self._open: dict[str, Store] = {}
        self._opening: set[str] = set()
        self._pid = os.getpid()
        self._lock = threading.RLock()

    def get(self, name: str) -> Store:
        """The open store. Raises as ``open_store`` does."""
        if self._pid != os.getpid():
            # Closing would say goodbye on the parent's sockets, so they are only let go.
            self._open, self._opening = {}, set()
            self._pid, self._lock = os.getpid(), threading.RLock()
        with self._lock:
            if name in self._open:
                return self._open[name]
            if name in self._opening:
                raise Refused(f"store {name} needs itself to be opened", where=f"store {name}")
            self._opening.add(name)
            try:
                store = open_store(self.settings, name, self.get, application=self._application)
            finally:
                self._opening.discard(name)
            self._open[name] = store
            return store

    def close(self) -> None:
        """Close all stores, the last opened first; the first error is raised at the end."""
        with self._lock:
            errors: list[Exception] = []
            while self._open and self._pid == os.getpid():
                _, store = self._open.popitem()
                try:
                    store.close()
                except Exception as error:  # noqa: BLE001  (the others must be closed too)
                    errors.append(error)
            if errors:
                raise errors[0]

    def __enter__(self) -> Stores:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
