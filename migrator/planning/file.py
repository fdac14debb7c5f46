"""Plan files: versioned JSON, checked as strictly as it is written."""

from __future__ import annotations

import hashlib
import os
import secrets
from pathlib import Path

import msgspec

from migrator.errors import Failed, Refused
from migrator.model.plan import FORMAT, Plan
from migrator.model.value import show


class _Head(msgspec.Struct):
    format: int


# Made here: two threads that decode a type for the first time, both at once, can crash msgspec.
_HEAD = msgspec.json.Decoder(_Head)
_PLAN = msgspec.json.Decoder(Plan)


def sealed(plan: Plan) -> Plan:
    """The plan with the digest of all that it says."""
    return msgspec.structs.replace(plan, digest=_digest(msgspec.to_builtins(plan)))


def _digest(told: dict[str, object]) -> str:
    """The digest of a plan's JSON, however it is laid out; of what it says, not of how a later
    version would say it."""
    rest = {name: value for name, value in told.items() if name != "digest"}
    return hashlib.sha256(msgspec.json.encode(rest, order="deterministic")).hexdigest()


def encode_plan(plan: Plan) -> bytes:
    """The bytes of a plan file."""
    return msgspec.json.format(msgspec.json.encode(sealed(plan)), indent=1) + b"\n"


def decode_plan(data: bytes, where: str) -> Plan:
    """The plan in a file. Raises Refused for a corrupt or foreign one, one that was changed after
    it was made, or a newer format."""
    try:
        head = _HEAD.decode(data)
        if head.format <= FORMAT:
            plan = _PLAN.decode(data)
            _check_digest(plan, msgspec.json.decode(data), where)
            return plan
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(
            f"this is no plan of Migrator, or it was damaged: {error}",
            where=where,
            hint="make a new one: migrator plan REVISION",
        ) from None
    raise Refused(
        f"this plan has format {head.format}; this version of Migrator reads up to {FORMAT}",
        where=where,
        hint="use the version that made it, or make a new plan: migrator plan REVISION",
    )


def _check_digest(plan: Plan, told: dict[str, object], where: str) -> None:
    """A plan is what was reviewed: who wants another one changes the script, and plans again."""
    if plan.digest != _digest(told):
        raise Refused(
            "this plan was changed after it was made",
            where=where,
            hint=f"make a new one: migrator plan {show(plan.revision)}",
        )


def write_plan(plan: Plan, path: Path) -> None:
    """Write a plan file, whole or not at all. Raises Failed, also for what is no file."""
    if path.exists() and not path.is_file():
        # A device or pipe would be replaced by a file of its name.
        raise Failed("the plan can't be written: it is no file", where=str(path))
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            file.write(encode_plan(plan))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise Failed(f"the plan can't be written: {error.strerror}", where=str(path)) from None


def read_plan(path: Path) -> Plan:
    """Read a plan file. Raises Refused for anything that is no plan."""
    try:
        return decode_plan(path.read_bytes(), str(path))
    except OSError as error:
        raise Refused(f"the plan can't be read: {error.strerror}", where=str(path)) from None


def plan_schema() -> bytes:
    """The published JSON schema of a plan."""
    return msgspec.json.format(msgspec.json.encode(msgspec.json.schema(Plan)), indent=1) + b"\n"
