"""Reads the reports of a trial from its journals, without an index."""

from __future__ import annotations

from typing import Any

from core_sdk.journal import find_records
from core_sdk.records import AttemptStarted, Report, metrics_from_json
from core_sdk.tracking import TrialFolder
from core_sdk.tracking.superseding import kept_until


def read_reports(folder: TrialFolder) -> list[tuple[int, dict[str, Any]]]:
    """Returns the steps and metrics of all reports in order, without those that a later attempt has superseded."""
    reports: dict[int, list[Report]] = {}
    resumed: dict[int, int | None] = {}
    for attempt in folder.attempts():
        for record in find_records(folder.journal_path(attempt), ('"report"', '"attempt"')):
            if isinstance(record, AttemptStarted):
                resumed[attempt] = record.resumed_steps
            elif isinstance(record, Report) and record.group in ("training", "validation"):
                reports.setdefault(attempt, []).append(record)
    kept = kept_until(resumed)
    return [
        (report.steps_completed, dict(metrics_from_json(report.metrics)))
        for attempt, of_attempt in reports.items()
        for report in of_attempt
        if report.steps_completed <= kept[attempt]
    ]
