"""How large a share of reads the mirror may answer, and what came of it."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0007", "0006"


def upgrade() -> None:
    op.create_table(
        "migrator_read_share",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("share", sa.Float, nullable=False),
        sa.Column("stale", sa.Float, nullable=False),
        sa.Column("epoch", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
    )
    op.create_table(
        "migrator_mirror_reads",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("move", sa.Integer, primary_key=True),
        sa.Column("epoch", sa.Integer, primary_key=True),
        sa.Column("instance", sa.String(32), primary_key=True),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("found", sa.Text, nullable=False),
    )
