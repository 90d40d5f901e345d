"""The tables of the index."""

from __future__ import annotations

import zlib
from collections.abc import Collection
from typing import NamedTuple, get_args

import msgspec

from core_sdk._ground.records import MAX_INT, CheckpointStored, ExperimentRecord, Record, Source, TrialRecord
from core_sdk._home.rows import CheckpointRow, ExperimentRow, TrialRow

_CONTENT = 26
"""Raise it whenever something else stands in the same tables."""

SCHEMA = """
CREATE TABLE experiment (
    experiment_id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    is_submitted INTEGER NOT NULL,
    -- Whether a master has begun it.
    has_search INTEGER NOT NULL,
    -- The metric that decides and its writer, if that metric is a writer's.
    writers_metric TEXT,
    writer TEXT,
    -- The fields of its record that its row has, as JSON.
    recorded TEXT NOT NULL,
    signature TEXT NOT NULL
);
CREATE TABLE trial (
    trial_id INTEGER PRIMARY KEY,
    experiment_id INTEGER NOT NULL,
    -- The fields of its record that its row has, as JSON.
    recorded TEXT NOT NULL,
    num_attempts INTEGER NOT NULL,
    steps_completed INTEGER NOT NULL,
    -- The folder's, when it was last indexed to the end; 0 if it must be looked at again.
    mtime_ns INTEGER NOT NULL,
    -- How far each of its journals, and what else it records, is indexed.
    mark TEXT NOT NULL
);
CREATE INDEX trial_of_experiment ON trial (experiment_id);

-- A row for each journal.
CREATE TABLE attempt (
    id INTEGER PRIMARY KEY,
    trial_id INTEGER NOT NULL,
    -- 0 is the trial's changes.journal.
    attempt INTEGER NOT NULL,
    -- Only rank 0 tells how the attempt went; other ranks tell their progress, their reports and the figures of their
    -- nodes. Of a writer beside the ranks it is the name, which is greater than any number.
    rank INTEGER NOT NULL,
    host TEXT,
    started REAL,
    -- Whether its process kept the journal where the home is not seen.
    is_spooled INTEGER,
    -- Bytes of the journal that are indexed, their fingerprint, and the time at which the file was last changed then.
    end_offset INTEGER NOT NULL DEFAULT 0,
    fingerprint INTEGER NOT NULL DEFAULT 0,
    mtime_ns INTEGER NOT NULL DEFAULT 0,
    -- Reports and profiles that were read.
    num_reports INTEGER NOT NULL DEFAULT 0,
    last_time REAL,
    resumed_steps INTEGER,
    -- The last step at which all was well, if a guard has found trouble that spoils it.
    good_until INTEGER,
    -- Beyond this step a later attempt has superseded it.
    kept_until INTEGER,
    num_bad_lines INTEGER NOT NULL DEFAULT 0,
    num_dropped INTEGER NOT NULL DEFAULT 0,
    drop_reason TEXT,
    -- The fields of the trial's row that its records have told, as JSON.
    told TEXT NOT NULL DEFAULT '{}',
    environment TEXT,
    -- Label -> whether the trial was given it, or lost it.
    label_changes TEXT,
    -- The step of the last report, at which an alert after it has happened.
    last_steps INTEGER,
    -- The newest attempt when the trial was archived.
    archived_attempt INTEGER,
    -- What somebody has settled about the trial, as JSON.
    settled TEXT,
    -- The last stall that an agent has told of, as JSON.
    stall TEXT,
    -- Attempt -> what the time after it is, as far as somebody has settled that.
    gaps TEXT,
    -- An `AttemptClock` as JSON, of the chief's journal.
    clock TEXT,
    stop_source TEXT,
    ended REAL,
    outcome TEXT,
    error TEXT,
    exit_time REAL,
    exit_code INTEGER,
    exit_problem TEXT,
    UNIQUE (trial_id, attempt, rank)
);
-- Those that may be running.
CREATE INDEX open_attempt ON attempt (trial_id) WHERE outcome IS NULL;
CREATE TABLE series (
    id INTEGER PRIMARY KEY,
    attempt_id INTEGER NOT NULL,
    -- The profiler's: `steps` of its points are milliseconds since the Unix epoch.
    is_profile INTEGER NOT NULL,
    group_name TEXT NOT NULL,
    -- Empty for the series of what reports hold beside metrics: its values are JSON, or NULL.
    name TEXT NOT NULL,
    -- Whether it is seen by those who ask for no rank: among a metric's series of an attempt, that of the lowest rank,
    -- or of the first writer by name. Of the metric by which an experiment decides, only that of its writer, if one is
    -- named.
    is_shown INTEGER NOT NULL,
    visible_until INTEGER NOT NULL,
    -- Whether its points are those that were reported again later; then none of them is visible.
    is_repeated INTEGER NOT NULL DEFAULT FALSE,
    UNIQUE (attempt_id, is_profile, group_name, name, is_repeated)
);
-- Consecutive points of a series, as columns.
CREATE TABLE block (
    series_id INTEGER NOT NULL,
    last_steps INTEGER NOT NULL,
    last_order INTEGER NOT NULL,
    first_steps INTEGER NOT NULL,
    count INTEGER NOT NULL,
    -- Of the finite values, as numbers that compare; NULL if there is none. Only a column of BLOB affinity keeps type
    -- and value: REAL would turn ints into floats, NUMERIC floats into ints.
    minimum BLOB,
    maximum BLOB,
    -- Each of these columns ends with its checksum.
    -- The numbers of the reports in their journal, as 32-bit integers; empty if they are consecutive.
    orders BLOB NOT NULL,
    -- The last value as MessagePack, and all steps as 64-bit integers, values as MessagePack and times as float64.
    last BLOB NOT NULL,
    steps BLOB NOT NULL,
    numbers BLOB NOT NULL,
    times BLOB NOT NULL
);
-- What is asked of whole series is answered from here.
CREATE UNIQUE INDEX block_of_series
    ON block (series_id, last_steps, last_order, first_steps, count, minimum, maximum);

-- What journals say of checkpoints, as JSON, in the order of their lines.
CREATE TABLE checkpoint_record (
    attempt_id INTEGER NOT NULL,
    position INTEGER NOT NULL,
    storage_id TEXT NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (attempt_id, position)
) WITHOUT ROWID;
CREATE INDEX record_of_checkpoint ON checkpoint_record (storage_id);

-- A `TimeMark` for each checkpoint of an attempt, in the order of their records.
CREATE TABLE mark (
    attempt_id INTEGER NOT NULL,
    steps INTEGER NOT NULL,
    at INTEGER NOT NULL,
    loading INTEGER NOT NULL,
    validating INTEGER NOT NULL,
    saving INTEGER NOT NULL
);
CREATE INDEX mark_of_attempt ON mark (attempt_id, steps);

CREATE TABLE alert (
    attempt_id INTEGER NOT NULL,
    steps INTEGER NOT NULL,
    time REAL NOT NULL,
    title TEXT NOT NULL,
    description TEXT NOT NULL,
    level TEXT NOT NULL
);
CREATE INDEX alert_of_attempt ON alert (attempt_id);
"""

OF_TRIAL = [name for name in TrialRow.__struct_fields__ if name in TrialRecord.__struct_fields__]
"""The fields of a trial's record that are kept as they are."""
OF_EXPERIMENT = [name for name in ExperimentRow.__struct_fields__ if name in ExperimentRecord.__struct_fields__]
"""The fields of an experiment's record that are kept as they are."""

OF_CHECKPOINT = [name for name in CheckpointRow.__struct_fields__ if name in CheckpointStored.__struct_fields__]
"""The fields of a checkpoint's record that its row has as they are."""
_OF_JOURNALS = [(kind.__name__, kind.__struct_fields__) for kind in get_args(Record)]

REVISION = zlib.crc32(repr((_CONTENT, SCHEMA, OF_TRIAL, OF_EXPERIMENT, _OF_JOURNALS)).encode()) >> 1
"""It changes with the tables and with the fields that are kept: an index of another revision is built again."""

BLOCKS = """attempt JOIN series ON series.attempt_id = attempt.id JOIN block ON block.series_id = series.id"""
IS_VISIBLE = "block.last_steps <= series.visible_until"
IS_METRIC = "NOT series.is_profile AND series.name != ''"

# The first and the last step of a series cost one seek each.
FIRST_STEPS = (
    "(SELECT block.first_steps FROM block WHERE block.series_id = series.id ORDER BY block.last_steps LIMIT 1)"
)
LAST_STEPS = "(SELECT max(block.last_steps) FROM block WHERE block.series_id = series.id)"
LAST_VISIBLE_STEPS = f"(SELECT max(block.last_steps) FROM block WHERE block.series_id = series.id AND {IS_VISIBLE})"
VISIBLE_MINIMUM = f"(SELECT min(block.minimum) FROM block WHERE block.series_id = series.id AND {IS_VISIBLE})"
VISIBLE_MAXIMUM = f"(SELECT max(block.maximum) FROM block WHERE block.series_id = series.id AND {IS_VISIBLE})"


class Where(NamedTuple):
    """A condition over the tables `trial` and `attempt`, or over `experiment`."""

    sql: str = "TRUE"
    values: tuple[object, ...] = ()


def of_rank(rank: Source | None) -> Where:
    """Returns a condition for the series of a rank or writer; None stands for those that are shown by default.

    There is no rank of more than 63 bits, and SQLite takes no such number.
    """
    if rank is None:
        return Where("series.is_shown")
    return Where("FALSE") if isinstance(rank, int) and rank >= MAX_INT else Where("attempt.rank = ?", (rank,))


def among(column: str, ids: Collection[int] | None) -> Where:
    """Returns the condition that a column is one of these ids; None stands for all.

    The ids are one JSON parameter, since SQLite limits the number of `?`.
    """
    return Where() if ids is None else Where(f"{column} IN (SELECT value FROM json_each(?))", (_json(ids),))


def _json(ids: Collection[int]) -> str:
    return msgspec.json.encode(list(ids)).decode()
