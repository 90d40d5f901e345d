"""The tables of the index."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

REVISION = 5
"""To be raised whenever a table changes: an index of another revision is built again."""

EVERYTHING = 2**63 - 1
"""`visible_until` of a series that nothing supersedes."""


class MetricColumn(sa.types.UserDefinedType[Any]):
    """A number, exactly as it was: an int stays an int, a float a float; NaN is NULL, the int 2**63 is text.

    SQLite keeps type and value of what it is given only in columns of BLOB affinity: REAL would turn ints into floats,
    NUMERIC floats into ints. Another database needs another column here, and is otherwise served by the same schema.
    """

    cache_ok = True

    def get_col_spec(self, **_: object) -> str:
        return "BLOB"


metadata = sa.MetaData()

experiment = sa.Table(
    "experiment",
    metadata,
    sa.Column("experiment_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("labels", sa.Text, nullable=False),
    sa.Column("description", sa.Text, nullable=False),
    sa.Column("signature", sa.Text, nullable=False),
)

trial = sa.Table(
    "trial",
    metadata,
    sa.Column("trial_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("experiment_id", sa.Integer, nullable=False, index=True),
    sa.Column("created", sa.Float, nullable=False),
    sa.Column("hparams", sa.Text, nullable=False),
    sa.Column("continued_from", sa.Text),
    sa.Column("num_attempts", sa.Integer, nullable=False),
    sa.Column("steps_completed", sa.BigInteger, nullable=False),
    # The folder's, when it was last indexed to the end; 0 if it must be looked at again.
    sa.Column("mtime_ns", sa.BigInteger, nullable=False),
)

# A row for each journal.
attempt = sa.Table(
    "attempt",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("trial_id", sa.Integer, nullable=False),
    # 0 is the trial's changes.journal.
    sa.Column("attempt", sa.Integer, nullable=False),
    # Only that of rank 0 tells how the attempt went; those of other ranks hold their progress and their nodes' figures.
    sa.Column("rank", sa.Integer, nullable=False),
    sa.Column("host", sa.Text),
    # Bytes of the journal that are indexed.
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
    sa.Column("exit_problem", sa.Text),
    sa.UniqueConstraint("trial_id", "attempt", "rank"),
)

series = sa.Table(
    "series",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("attempt_id", sa.Integer, nullable=False),
    # The profiler's: `steps` of its points are milliseconds since the Unix epoch.
    sa.Column("is_profile", sa.Boolean, nullable=False),
    sa.Column("group_name", sa.Text, nullable=False),
    # Empty for the series of what reports hold beside metrics: its values are JSON, or NULL.
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("visible_until", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("attempt_id", "is_profile", "group_name", "name"),
)

point = sa.Table(
    "point",
    metadata,
    sa.Column("series_id", sa.Integer, primary_key=True),
    sa.Column("steps", sa.BigInteger, primary_key=True, autoincrement=False),
    # Since the attempt started. It is part of the key so that no report can hide another.
    sa.Column("ticks", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("value", MetricColumn),
    # Clustered by series and step: what a chart reads lies together, and no second index is paid for.
    sqlite_with_rowid=False,
)

checkpoint = sa.Table(
    "checkpoint",
    metadata,
    sa.Column("attempt_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("storage_id", sa.Text, nullable=False, index=True),
    sa.Column("steps_completed", sa.BigInteger, nullable=False),
    sa.Column("time", sa.Float, nullable=False),
    sa.Column("storage", sa.Text, nullable=False),
    sa.Column("metadata", sa.Text, nullable=False),
    sa.Column("resources", sa.Text, nullable=False),
)

# Apart from `checkpoint`, since one trial may delete another's, and either may be indexed first.
checkpoint_deleted = sa.Table(
    "checkpoint_deleted",
    metadata,
    sa.Column("attempt_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("storage_id", sa.Text, primary_key=True),
)

# What was done to a checkpoint short of deleting it, in the order of a journal's lines.
checkpoint_change = sa.Table(
    "checkpoint_change",
    metadata,
    sa.Column("attempt_id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("storage_id", sa.Text, nullable=False, index=True),
    # The record, as JSON.
    sa.Column("record", sa.Text, nullable=False),
    sa.Column("is_pruning", sa.Boolean, nullable=False),
)
