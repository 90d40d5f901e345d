"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from core_sdk.tracking.index._schema import MetricColumn

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "experiment",
        sa.Column("experiment_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("labels", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("signature", sa.Text, nullable=False),
    )
    op.create_table(
        "trial",
        sa.Column("trial_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("experiment_id", sa.Integer, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("hparams", sa.Text, nullable=False),
        sa.Column("continued_from", sa.Text),
        sa.Column("num_attempts", sa.Integer, nullable=False),
        sa.Column("steps_completed", sa.BigInteger, nullable=False),
        sa.Column("mtime_ns", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_trial_experiment_id", "trial", ["experiment_id"])
    op.create_table(
        "attempt",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("trial_id", sa.Integer, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
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
        sa.UniqueConstraint("trial_id", "attempt"),
    )
    op.create_table(
        "series",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("attempt_id", sa.Integer, nullable=False),
        sa.Column("is_profile", sa.Boolean, nullable=False),
        sa.Column("group_name", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("visible_until", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("attempt_id", "is_profile", "group_name", "name"),
    )
    op.create_table(
        "point",
        sa.Column("series_id", sa.Integer, primary_key=True),
        sa.Column("steps", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("ticks", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("value", MetricColumn),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "checkpoint",
        sa.Column("attempt_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("storage_id", sa.Text, nullable=False),
        sa.Column("steps_completed", sa.BigInteger, nullable=False),
        sa.Column("time", sa.Float, nullable=False),
        sa.Column("storage", sa.Text, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("resources", sa.Text, nullable=False),
    )
    op.create_index("ix_checkpoint_storage_id", "checkpoint", ["storage_id"])
    op.create_table(
        "checkpoint_deleted",
        sa.Column("attempt_id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("storage_id", sa.Text, primary_key=True),
    )


def downgrade() -> None:
    for table in ("checkpoint_deleted", "checkpoint", "point", "series", "attempt", "trial", "experiment"):
        op.drop_table(table)
