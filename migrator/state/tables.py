"""The tables of the control database, as the code reads them; alembic makes them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import sqlalchemy as sa

metadata = sa.MetaData()

run = sa.Table(
    "migrator_run",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("env", sa.Text, nullable=False),
    sa.Column("revision", sa.Text, nullable=False),
    sa.Column("fingerprint", sa.String(64), nullable=False),
    sa.Column("plan", sa.Text, nullable=False),
    sa.Column("phase", sa.String(20), nullable=False),
    sa.Column("primary_side", sa.String(10), nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("started", sa.Float, nullable=False),
    sa.Column("changed", sa.Float, nullable=False),
    sa.Column("live", sa.Boolean, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("fence", sa.String(10), nullable=False),
)

move = sa.Table(
    "migrator_move",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("cls", sa.Text, nullable=False),
    sa.Column("source", sa.Text, nullable=False),
    sa.Column("target", sa.Text, nullable=False),
    sa.Column("open", sa.Boolean, nullable=False),
)

task = sa.Table(
    "migrator_task",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("move", sa.Integer, primary_key=True),
    sa.Column("work", sa.String(20), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("of", sa.Integer, nullable=False),
    sa.Column("range", sa.Text, nullable=False),
    sa.Column("position", sa.Text, nullable=False),
    sa.Column("done", sa.Boolean, nullable=False),
    sa.Column("counts", sa.Text, nullable=False),
    sa.Column("intent", sa.Text),
)

log = sa.Table(
    "migrator_log",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("run", sa.Text, nullable=False, index=True),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("who", sa.Text, nullable=False),
    sa.Column("host", sa.Text, nullable=False),
    sa.Column("job", sa.Text, nullable=False),
    sa.Column("event", sa.String(80), nullable=False),
    sa.Column("detail", sa.Text, nullable=False),
)

quarantine = sa.Table(
    "migrator_quarantine",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("move", sa.Integer, primary_key=True),
    sa.Column("key", sa.String(700), primary_key=True),
    sa.Column("shown", sa.Text, nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
)

lease = sa.Table(
    "migrator_lease",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("holder", sa.Text, nullable=False),
    sa.Column("generation", sa.Integer, nullable=False),
    sa.Column("counter", sa.Integer, nullable=False),
    sa.Column("seconds", sa.Float, nullable=False),
)

stamp = sa.Table(
    "migrator_stamp",
    metadata,
    sa.Column("env", sa.Text, primary_key=True),
    sa.Column("revision", sa.Text, primary_key=True),
    sa.Column("at", sa.Float, nullable=False),
)

feed = sa.Table(
    "migrator_feed",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("move", sa.Integer, primary_key=True),
    sa.Column("side", sa.String(10), primary_key=True),
    sa.Column("position", sa.Text, nullable=False),
    sa.Column("scan", sa.Text),
)

ledger = sa.Table(
    "migrator_ledger",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("move", sa.Integer, primary_key=True),
    sa.Column("key", sa.String(700), primary_key=True),
    sa.Column("shown", sa.Text, nullable=False),
    sa.Column("path", sa.Text, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
)

mirror = sa.Table(
    "migrator_mirror",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("wanted", sa.Text, nullable=False),
    sa.Column("asked", sa.Integer, nullable=False),
    sa.Column("answered", sa.Integer, nullable=False),
    sa.Column("answer", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("at", sa.Float, nullable=False),
)

pace = sa.Table(
    "migrator_pace",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("rate", sa.Float),
    sa.Column("paused", sa.Boolean, nullable=False),
)

reads = sa.Table(
    "migrator_reads",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("shadow", sa.Float, nullable=False),
)

shadow = sa.Table(
    "migrator_shadow",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("move", sa.Integer, primary_key=True),
    sa.Column("epoch", sa.Integer, primary_key=True),
    sa.Column("instance", sa.String(32), primary_key=True),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("found", sa.Text, nullable=False),
)

read_share = sa.Table(
    "migrator_read_share",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("share", sa.Float, nullable=False),
    sa.Column("stale", sa.Float, nullable=False),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
)

mirror_reads = sa.Table(
    "migrator_mirror_reads",
    metadata,
    sa.Column("run", sa.Text, primary_key=True),
    sa.Column("move", sa.Integer, primary_key=True),
    sa.Column("epoch", sa.Integer, primary_key=True),
    sa.Column("instance", sa.String(32), primary_key=True),
    sa.Column("at", sa.Float, nullable=False),
    sa.Column("found", sa.Text, nullable=False),
)


def keep(
    c: sa.Connection,
    table: sa.Table,
    key: Mapping[str, object],
    values: Mapping[str, object],
    others: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Keep a row under its key: changed where there is one, else made, with what the ``others``
    of its columns hold at first."""
    here = [table.c[name] == value for name, value in key.items()]
    if not c.execute(table.update().where(*here).values(**values)).rowcount and not make(
        c, table, {**others, **key, **values}
    ):
        c.execute(table.update().where(*here).values(**values))


def make(c: sa.Connection, table: sa.Table, values: Mapping[str, object]) -> bool:
    """Make a row; False where there is one under its key, which another process made just now."""
    try:
        with c.begin_nested():
            c.execute(table.insert().values(**values))
    except sa.exc.IntegrityError:
        return False
    return True
