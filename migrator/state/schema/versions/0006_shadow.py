"""What gateways find by shadow reads, and how large a share of their reads is made so."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0006", "0005"


def upgrade() -> None:
    op.create_table(
        "migrator_reads",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("shadow", sa.Float, nullable=False),
    )
    op.create_table(
        "migrator_shadow",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("move", sa.Integer, primary_key=True),
        sa.Column("epoch", sa.Integer, primary_key=True),
        sa.Column("instance", sa.String(32), primary_key=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("found", sa.Text, nullable=False),
    )
