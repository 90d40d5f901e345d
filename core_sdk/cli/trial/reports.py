"""The reports of a trial, as `trial metrics` prints them."""

from __future__ import annotations

import shutil
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, Any

from core_sdk.cli.render.csv import print_csv
from core_sdk.cli.render.json import encode, print_list
from core_sdk.cli.render.output import Format
from core_sdk.cli.render.plot import num_buckets, plot
from core_sdk.cli.render.tables import Column, print_table
from core_sdk.cli.render.text import format_number, format_time, printable
from core_sdk.errors import CoreSDKError, NotFoundError
from core_sdk.tracking.rows import ReportRow

if TYPE_CHECKING:
    from core_sdk.tracking import View

_MAX_METRIC_COLUMNS = 5
_NOTHING = "No reports yet."


class NoSuchGroupError(NotFoundError):
    def __init__(self, trial_id: int, group: str, known: Iterable[str]) -> None:
        names = ", ".join(known) or "none yet"
        super().__init__(f"trial {trial_id} has no reports of a group {group!r} to show. Its groups: {names}.")


class NothingToPlotError(CoreSDKError):
    def __init__(self, trial_id: int, group: str) -> None:
        super().__init__(f"group {group!r} of trial {trial_id} has no numbers over steps to plot. Leave out --plot.")


def reports_of_group(view: View, trial_id: int, group: str | None, *, with_superseded: bool) -> Iterator[ReportRow]:
    """Of all groups if `group` is None. Raises `NoSuchGroupError` for one without reports."""
    reports = view.reports(trial_id, group=group, superseded=with_superseded)
    first = next(reports, None)
    if first is None:
        if group is not None:
            raise NoSuchGroupError(trial_id, group, view.groups(trial_id))
        return iter(())
    return chain([first], reports)


def print_reports(reports: Iterable[ReportRow], form: Format, *, with_superseded: bool, num_last: int) -> None:
    """Tables show the last `num_last` reports of each group; JSON and CSV show all."""
    match form:
        case Format.JSON:
            print_list(_json_object(report, with_superseded) for report in reports)
        case Format.CSV:
            _print_csv(reports, with_superseded)
        case Format.TABLE:
            _print_tables(reports, num_last)


def _print_csv(reports: Iterable[ReportRow], with_superseded: bool) -> None:
    """One metric of one report a row."""
    columns = ["trial_id", "attempt", "rank", "group", "steps_completed", "time", "name", "value"]
    print_csv(
        [*columns, "is_superseded"] if with_superseded else columns,
        (row if with_superseded else row[:-1] for report in reports for row in _csv_rows(report)),
    )


def _print_tables(reports: Iterable[ReportRow], num_last: int) -> None:
    """One table for each group, with its last reports."""
    latest: defaultdict[str, deque[ReportRow]] = defaultdict(lambda: deque(maxlen=num_last))
    counts: defaultdict[str, int] = defaultdict(int)
    for report in reports:
        latest[report.group].append(report)
        counts[report.group] += 1
    for group, shown in latest.items():
        title = group if counts[group] == len(shown) else f"{group} (the last {len(shown)} of {counts[group]} reports)"
        print_table([*_fixed_columns(shown), *_metric_columns(shown)], shown, title=title)
    if not latest:
        print(_NOTHING)


def print_plots(view: View, trial_id: int, group: str | None) -> None:
    width = shutil.get_terminal_size().columns
    series = [one for one in view.series(trial_id) if group in (None, one.group)]
    if group is not None and not series:
        known = view.groups(trial_id)
        raise NothingToPlotError(trial_id, group) if group in known else NoSuchGroupError(trial_id, group, known)
    for one in series:
        lines = plot(view.buckets(trial_id, one.group, one.name, num_buckets(width)), width=width)
        print(printable(f"{one.group} {one.name}"))
        print("\n".join(lines or ["  (no finite values)"]))
        print()
    if not series:
        print(_NOTHING)


def _json_object(report: ReportRow, with_superseded: bool) -> dict[str, Any]:
    shown = {
        "trial_id": report.trial_id,
        "attempt": report.attempt,
        "rank": report.rank,
        "group": report.group,
        "steps_completed": report.steps_completed,
        "time": report.time,
        "metrics": report.metrics,
    }
    return shown | {"is_superseded": report.is_superseded} if with_superseded else shown


def _csv_rows(report: ReportRow) -> Iterator[list[Any]]:
    start = [report.trial_id, report.attempt, report.rank, report.group, report.steps_completed, report.time]
    for name, value in report.metrics.items():
        shown = encode(value) if value is None or isinstance(value, bool) else value
        yield [*start, name, shown, report.is_superseded]


def _fixed_columns(reports: Iterable[ReportRow]) -> list[Column[ReportRow]]:
    rank = Column[ReportRow]("Rank", lambda report: str(report.rank), True)
    return [
        Column("Steps", lambda report: "" if report.steps_completed is None else str(report.steps_completed), True),
        Column("Attempt", lambda report: f"{report.attempt}{' (superseded)' if report.is_superseded else ''}", True),
        *([rank] if any(report.rank for report in reports) else []),
        Column("Time", lambda report: format_time(report.time)),
    ]


def _metric_columns(reports: Iterable[ReportRow]) -> list[Column[ReportRow]]:
    names = list(dict.fromkeys(name for report in reports for name in report.metrics))
    if len(names) > _MAX_METRIC_COLUMNS:
        return [Column("Metrics", _all_metrics)]
    return [_metric_column(name) for name in names]


def _metric_column(name: str) -> Column[ReportRow]:
    return Column(name, lambda report: _value(report, name), is_number=True)


def _value(report: ReportRow, name: str) -> str:
    return _text(report.metrics[name]) if name in report.metrics else ""


def _all_metrics(report: ReportRow) -> str:
    return "  ".join(f"{name}={_text(value)}" for name, value in report.metrics.items())


def _text(value: Any) -> str:
    return format_number(value) if type(value) in (int, float) else encode(value)
