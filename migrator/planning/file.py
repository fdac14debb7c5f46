"""Plan files: versioned JSON, checked as strictly as it is written."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import msgspec

from migrator.errors import Failed, Refused
from migrator.model.plan import FORMAT, Plan


class _Head(msgspec.Struct):
    format: int


def encode_plan(plan: Plan) -> bytes:
    """The bytes of a plan file."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=1) + b"\n"


def decode_plan(data: bytes, where: str) -> Plan:
    """The plan in a file. Raises Refused for a corrupt or foreign one, or a newer format."""
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.format <= FORMAT:
            return msgspec.json.decode(data, type=Plan)
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
