"""Names of any length: of environments, revisions, classes, users and hosts, and so of runs."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0002", "0001"

_NAMES = {
    "migrator_run": ("id", "env", "revision"),
    "migrator_move": ("run", "cls"),
    "migrator_task": ("run",),
    "migrator_log": ("run", "who", "host", "job"),
    "migrator_quarantine": ("run",),
    "migrator_lease": ("name",),
    "migrator_stamp": ("env", "revision"),
}


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        return  # it keeps to no length
    for table, columns in _NAMES.items():
        for column in columns:
            op.alter_column(table, column, type_=sa.Text)
