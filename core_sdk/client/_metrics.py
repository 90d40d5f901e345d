"""Reports for readers: one by one, or as the columns of a frame."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice, repeat
from typing import Any

from core_sdk._ground.records import Metric, Source
from core_sdk._home.rows import ReportRow

FRAME_COLUMNS = ("trial_id", "attempt", "rank", "group", "steps_completed", "time")
_CHUNK_ROWS = 1000
_CLASHING_NAME = re.compile(rf"(metrics\.)*({'|'.join(FRAME_COLUMNS)})")


@dataclass(frozen=True)
class TrialMetrics:
    """A report of metrics."""

    trial_id: int
    trial_run_id: int
    """The number of the attempt that reported."""
    steps_completed: int | None
    """The step; None for the profiler's groups, which belong to a time, not to a step."""
    end_time: datetime
    """The time of the report in UTC, by the clock of the training's machine."""
    metrics: dict[str, Any]
    """Numbers and `media.MediaFile`s; in generic groups also JSON values."""
    group: str
    batch_metrics: list[dict[str, Metric]] | None = None
    is_superseded: bool = False
    """A later attempt went on from a checkpoint before this report, or a later report repeats these metrics."""
    rank: Source = 0
    """The rank that reported, or the name of the writer; in the profiler's groups it identifies the node."""

    @property
    def total_batches(self) -> int | None:
        """Another name of `steps_completed`."""
        return self.steps_completed


def trial_metrics(row: ReportRow) -> TrialMetrics:
    return TrialMetrics(
        trial_id=row.trial_id,
        trial_run_id=row.attempt,
        steps_completed=row.steps_completed,
        end_time=to_datetime(row.time),
        metrics=row.metrics,
        group=row.group,
        batch_metrics=row.batch_metrics,
        is_superseded=row.is_superseded,
        rank=row.rank,
    )


def frame(reports: Iterable[ReportRow]) -> dict[str, list[Any]]:
    """Returns columns of equal length, with one row per report: `FRAME_COLUMNS`, then one column per metric.

    A metric that the report does not have is None. A metric with the name of one of `FRAME_COLUMNS` is called
    "metrics.<name>".
    """
    columns: dict[str, list[Any]] = {name: [] for name in FRAME_COLUMNS}
    metrics: dict[str, list[Any]] = {}
    num_rows = 0
    remaining = iter(reports)
    while chunk := list(islice(remaining, _CHUNK_ROWS)):
        columns["trial_id"] += [report.trial_id for report in chunk]
        columns["attempt"] += [report.attempt for report in chunk]
        columns["rank"] += [report.rank for report in chunk]
        columns["group"] += [report.group for report in chunk]
        columns["steps_completed"] += [report.steps_completed for report in chunk]
        columns["time"] += [to_datetime(report.time) for report in chunk]
        reported = [report.metrics for report in chunk]
        for name in dict.fromkeys(chain.from_iterable(reported)):
            column = metrics.setdefault(name, [])
            column.extend(repeat(None, num_rows - len(column)))
            column += [values.get(name) for values in reported]
        num_rows += len(chunk)
    for column in metrics.values():
        column.extend(repeat(None, num_rows - len(column)))
    return columns | {_column(name): values for name, values in metrics.items()}


def to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _column(name: str) -> str:
    # A name that has the prefix already gets one more, so that no two metrics share a column.
    return f"metrics.{name}" if _CLASHING_NAME.fullmatch(name) else name
