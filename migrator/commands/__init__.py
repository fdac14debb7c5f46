"""What Migrator does, as plain functions that return values and never print.

The CLI only reflects them. Each takes a ``Project``: settings, scripts, stores and the control
database of one environment, opened as they are needed.
"""

from migrator.commands.accepting import unknown_codes, unknown_keys
from migrator.commands.applying import apply
from migrator.commands.live import mirror
from migrator.commands.pacing import Paced, pause, resume, throttle
from migrator.commands.pings import KindRow, LayoutStatus, StoreStatus, kinds, stores
from migrator.commands.plans import (
    Progress,
    is_plan_file,
    plan,
    plan_file,
    plan_to_file,
    planned_live,
    reach,
    save_plan,
    show,
    subject,
)
from migrator.commands.project import Project
from migrator.commands.quarantined import quarantine, retry_quarantined
from migrator.commands.reading import ReadShare, reads
from migrator.commands.records import RunStatus, events, status, stopping
from migrator.commands.repairing import Inspected, inspect, repair
from migrator.commands.runs import (
    abort,
    cutover,
    finish,
    held_at,
    left_on_servers,
    rollback,
    verify_run,
)
from migrator.commands.scripts import Current, check, current, heads, history, new, stamp
from migrator.commands.shadowing import ShadowShare, shadow, shadow_share
from migrator.commands.started import (
    Applied,
    Terms,
    check_plan,
    frozen_plan,
    pending,
    unfinished,
)
from migrator.commands.watching import Outlook, Watched, watch
from migrator.engine.shadow import Shadowed
from migrator.engine.swap import SwapTerms
from migrator.project_files import init

__all__ = [
    "Applied",
    "Current",
    "Inspected",
    "KindRow",
    "LayoutStatus",
    "Outlook",
    "Paced",
    "Progress",
    "Project",
    "ReadShare",
    "RunStatus",
    "ShadowShare",
    "Shadowed",
    "StoreStatus",
    "SwapTerms",
    "Terms",
    "Watched",
    "abort",
    "apply",
    "check",
    "check_plan",
    "current",
    "cutover",
    "events",
    "finish",
    "frozen_plan",
    "heads",
    "held_at",
    "history",
    "init",
    "inspect",
    "is_plan_file",
    "kinds",
    "left_on_servers",
    "mirror",
    "new",
    "pause",
    "pending",
    "plan",
    "plan_file",
    "plan_to_file",
    "planned_live",
    "quarantine",
    "reach",
    "reads",
    "repair",
    "resume",
    "retry_quarantined",
    "rollback",
    "save_plan",
    "shadow",
    "shadow_share",
    "show",
    "stamp",
    "status",
    "stopping",
    "stores",
    "subject",
    "throttle",
    "unfinished",
    "unknown_codes",
    "unknown_keys",
    "verify_run",
    "watch",
]
