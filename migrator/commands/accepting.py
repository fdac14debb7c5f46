"""What somebody accepts that is not there: a word that was mistyped, or is no longer needed."""

from __future__ import annotations

from collections.abc import Iterable

from migrator.commands.project import Project
from migrator.model.plan import Plan
from migrator.state import LiveState, Run, ShadowReads


def unknown_codes(made: Plan, codes: Iterable[str]) -> list[str]:
    """Those codes of which a plan has no finding to accept."""
    known = {finding.code for finding in made.to_accept}
    return [code for code in dict.fromkeys(codes) if code not in known]


def unknown_keys(project: Project, run: Run, keys: Iterable[str]) -> list[str]:
    """Those keys (``Class:id``) of which a run has no block that would be left behind: none in
    quarantine, none that could not be written back, none that differed when it was compared."""
    keys = list(dict.fromkeys(keys))
    if not keys:
        return []
    known = {item.shown for item in project.control.quarantined(run.id)}
    if run.live:
        known |= {item.shown for item in LiveState(project.control, run.id).ledger()}
        open_ = ShadowReads(project.control, run.id).open()
        known |= {key for some in open_.values() for key in some}
    return [key for key in keys if key not in known]
