"""What ``--format json`` prints: the types of all results, whose fields are its stable keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from migrator.revisions import HistoryEntry
    from migrator.state import Run


class Error(msgspec.Struct, frozen=True, kw_only=True):
    """Why a command did not do what it should; any command may print it."""

    error: str
    where: str
    hint: str
    exit_code: int
    kind: str


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """One class on its way in a revision; ``source`` is null where it can't be told."""

    cls: str
    source: str | None
    target: str


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One revision of the history."""

    id: str
    down: list[str]
    message: str
    file: str
    head: bool
    done: bool
    moves: list[Moved]


class RunTold(msgspec.Struct, frozen=True, kw_only=True):
    """A run after a step. ``primary`` is source or target; ``changed`` is in seconds since 1970."""

    run: str
    revision: str
    phase: str
    primary: str
    epoch: int
    changed: float


class Initialised(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a new project."""

    written: list[str]


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """Where a service listens. It is printed once that is so, on one line."""

    url: str
    classes: list[str]


class Drafted(msgspec.Struct, frozen=True, kw_only=True):
    """A new script."""

    id: str
    down: list[str]
    file: str


class Stamped(msgspec.Struct, frozen=True, kw_only=True):
    """A revision that is noted as done."""

    revision: str


class Retried(msgspec.Struct, frozen=True, kw_only=True):
    """How many blocks left the quarantine, how many remain."""

    written: int
    remain: int


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a run's log. ``at`` is in seconds since 1970; ``detail`` goes with ``event``."""

    id: int
    run: str
    at: float
    who: str
    host: str
    job: str
    event: str
    detail: dict[str, Any]


def entry(found: HistoryEntry, done: set[str]) -> Entry:
    """A revision of the history as a result."""
    return Entry(
        id=found.id,
        down=list(found.down),
        message=found.message,
        file=str(found.file),
        head=found.head,
        done=found.id in done,
        moves=[
            Moved(
                cls=step.cls,
                source=None if step.source is None else str(step.source),
                target=str(step.target),
            )
            for step in found.steps
        ],
    )


def run_told(run: Run) -> RunTold:
    """A run as a result, without the plan inside it."""
    return RunTold(
        run=run.id, revision=run.revision, phase=run.phase.value, primary=run.primary,
        epoch=run.epoch, changed=run.changed,
    )  # fmt: skip


def results() -> dict[str, object]:
    """The type of each command's result, by the words of the command."""
    from migrator.commands import (
        Applied,
        Current,
        Inspected,
        KindRow,
        Paced,
        ReadShare,
        RunStatus,
        Shadowed,
        ShadowShare,
        StoreStatus,
        Watched,
    )
    from migrator.drill import Report
    from migrator.engine.verify import Verification
    from migrator.model.plan import Plan
    from migrator.revisions import Checked
    from migrator.state import Quarantined

    return {
        "init": Initialised,
        "new": Drafted,
        "check": Checked,
        "history": list[Entry],
        "heads": list[Entry],
        "current": list[Current],
        "stamp": Stamped,
        "stores": list[StoreStatus],
        "stores --kinds": list[KindRow],
        "plan": Plan | None,
        "show": Plan,
        "apply": Applied | None,
        "mirror": RunTold,
        "verify": list[Verification],
        "status": list[RunStatus],
        "status --watch": Watched,
        "shadow": list[Shadowed],
        "shadow --share": ShadowShare,
        "reads": ReadShare,
        "throttle": Paced,
        "pause": Paced,
        "resume": Paced,
        "cutover": Applied,
        "rollback": Applied,
        "abort": RunTold,
        "finish": RunTold,
        "repair": Inspected,
        "drill": Report,
        "serve": Served,
        "log": list[Event],
        "quarantine list": list[Quarantined],
        "quarantine retry": Retried,
    }
