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

__all__ = ["Control", "Lease", "Quarantined", "Run", "Task", "open_control", "quarantine_key"]
