"""Journals of ranks other than 0, and the hosts on which journals were written."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    # The older index does not know what it has passed over: all journals are read again.
    for table in ("checkpoint_deleted", "checkpoint", "point", "series", "trial"):
        op.execute(sa.delete(sa.table(table)))
    op.drop_table("attempt")
    op.create_table(
        "attempt",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("trial_id", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("rank", sa.Integer, nullable=False),
        sa.Column("host", sa.Text),
        sa.Column("end_offset", sa.BigInteger, nullable=False),
        sa.Column("started", sa.Float),
        sa.Column("last_time", sa.Float),
        sa.Column("resumed_steps", sa.BigInteger),
        sa.Column("num_bad_lines", sa.Integer, nullable=False),
        sa.Column("num_dropped", sa.Integer, nullable=False),
        sa.Column("progress", sa.Float),
        sa.Column("status", sa.Text),
        sa.Column("metadata", sa.Text),
        sa.Column("stop_source", sa.Text),
        sa.Column("ended", sa.Float),
        sa.Column("outcome", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("exit_time", sa.Float),
        sa.Column("exit_code", sa.Integer),
        sa.UniqueConstraint("trial_id", "attempt", "rank"),
    )
