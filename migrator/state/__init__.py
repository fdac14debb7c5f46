"""Runs, checkpoints, quarantine, leases and the log, in the control database."""

from migrator.state.control import (
    Control,
    Quarantined,
    Run,
    Task,
    open_control,
    quarantine_key,
)
from migrator.state.lease import Lease
from migrator.state.live import LiveState, Position, Request

__all__ = [
    "Control",
    "Lease",
    "LiveState",
    "Position",
    "Quarantined",
    "Request",
    "Run",
    "Task",
    "open_control",
    "quarantine_key",
]
