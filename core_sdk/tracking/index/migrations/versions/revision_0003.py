"""Pins, partial deletions and metadata of checkpoints."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    # The older index does not know what it has passed over: all journals are read again.
    for table in ("checkpoint_deleted", "checkpoint", "point", "series", "attempt", "trial"):
        op.execute(sa.delete(sa.table(table)))
    op.create_table(
        "checkpoint_change",
        sa.Column("attempt_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("storage_id", sa.Text, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
        sa.Column("is_pruning", sa.Boolean, nullable=False),
    )
    op.create_index("ix_checkpoint_change_storage_id", "checkpoint_change", ["storage_id"])
