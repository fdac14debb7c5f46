"""How fast a run may copy: what somebody said while it went on."""

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0005", "0004"


def upgrade() -> None:
    op.create_table(
        "migrator_pace",
        sa.Column("run", sa.Text, primary_key=True),
        sa.Column("rate", sa.Float),
        sa.Column("paused", sa.Boolean, nullable=False),
    )
