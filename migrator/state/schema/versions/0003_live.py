"""What a live move keeps: feeds' positions, the reverse ledger, what the mirror says of itself."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0003", "0002"


def upgrade() -> None:
    with op.batch_alter_table("migrator_run") as run:
        run.add_column(sa.Column("live", sa.Boolean, nullable=False, server_default=sa.false()))
        run.add_column(sa.Column("attempt", sa.Integer, nullable=False, server_default="0"))
        run.add_column(sa.Column("fence", sa.String(10), nullable=False, server_default=""))
    op.create_table(
        "migrator_feed",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("move", sa.Integer, primary_key=True),
        sa.Column("side", sa.String(10), primary_key=True),
        sa.Column("position", sa.Text, nullable=False),
        sa.Column("scan", sa.Text),
    )
    op.create_table(
        "migrator_ledger",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("move", sa.Integer, primary_key=True),
        sa.Column("key", sa.String(700), primary_key=True),
        sa.Column("shown", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_table(
        "migrator_mirror",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("wanted", sa.Text, nullable=False),
        sa.Column("asked", sa.Integer, nullable=False),
        sa.Column("answered", sa.Integer, nullable=False),
        sa.Column("answer", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
