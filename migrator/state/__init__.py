"""Runs, checkpoints, quarantine, leases and the log, in the control database."""

from migrator.state.control import Control, Run, Task, open_control
from migrator.state.lease import Lease
from migrator.state.live import LiveState, Position, Request
from migrator.state.merging import Part
from migrator.state.pace import Pace, keep_pace, read_pace
from migrator.state.quarantine import Quarantined, highest_number, quarantine_key
from migrator.state.reads import Answered, MirrorReads, Share, all_answered
from migrator.state.shadow import Reads, ShadowReads, add_up

__all__ = [
    "Answered",
    "Control",
    "Lease",
    "LiveState",
    "MirrorReads",
    "Pace",
    "Part",
    "Position",
    "Quarantined",
    "Reads",
    "Request",
    "Run",
    "ShadowReads",
    "Share",
    "Task",
    "add_up",
    "all_answered",
    "highest_number",
    "keep_pace",
    "open_control",
    "quarantine_key",
    "read_pace",
]
