"""The leases of gateways: who writes a class, and what of its run they have seen."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0004", "0003"


def upgrade() -> None:
    op.create_table(
        "migrator_gateway",
        sa.Column("instance", sa.String(32), primary_key=True),
        sa.Column("env", sa.Text, nullable=False),
        sa.Column("cls", sa.Text, nullable=False),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("counter", sa.Integer, nullable=False),
        sa.Column("seconds", sa.Float, nullable=False),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("phase", sa.String(20), nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("acknowledged", sa.Integer, nullable=False),
    )
