"""The run's id in what a gateway's threads log."""

from __future__ import annotations

from structlog.contextvars import bind_contextvars, unbind_contextvars

from migrator.state.gateways import Standing


def log_of(standing: Standing) -> None:
    """Have all that this thread logs from here on carry the run that the class is in. For the
    gateway's own threads: what the application logs in its own is the application's."""
    if standing.run:
        bind_contextvars(run=standing.run)
    else:
        unbind_contextvars("run")
