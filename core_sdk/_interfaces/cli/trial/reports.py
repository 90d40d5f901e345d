"""`core-sdk trial metrics`: the reports of a trial."""

from __future__ import annotations

import sys
import time
from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import Annotated, Any

import click
import msgspec

from core_sdk._ground.records import MediaFile, SearcherMetric, Source, format_number, in_order, strict_json
from core_sdk._home import Home, View, open_view
from core_sdk._home.attempts.running import attempt_rows
from core_sdk._home.finding.facts import metric_named
from core_sdk._home.rows import Outline, Ranks, ReportRow, StreamPosition, source_named
from core_sdk._home.streams import read_reports
from core_sdk._interfaces.cli._arguments import Metrics, Rank, ReportGroup, Since, Superseded
from core_sdk._interfaces.cli._home import open_home
from core_sdk._interfaces.cli._ids import TrialId
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.render.form import AsCsv, AsJson, Fields, choose_form
from core_sdk._interfaces.render.output import (
    Form,
    chosen,
    fields_as_csv,
    print_csv,
    print_elements,
    print_fields_as_csv,
)
from core_sdk._interfaces.render.tables import Column, print_table
from core_sdk._interfaces.render.text import format_time, printable
from core_sdk._interfaces.signatures import Option
from core_sdk.errors import CoreSDKError, NotRecordedError

_ORIGIN = ["trial_id", "attempt", "rank", "group"]
_CSV_COLUMNS = [*_ORIGIN, "steps_completed", "time", "name", "value"]
# JSON leaves out the batches of a report, and whether it is superseded unless somebody asks for such reports.
_NOT_IN_JSON = {"batch_metrics", "is_superseded"}
_JSON_FIELDS = [*_ORIGIN, *(name for name in ReportRow.__struct_fields__ if name not in {*_ORIGIN, *_NOT_IN_JSON})]
_POLL_INTERVAL_S = 0.2
_NUM_LAST = 20


def metrics(
    trial_id: TrialId,
    group: ReportGroup = None,
    metric: Metrics = None,
    superseded: Superseded = False,
    rank: Rank = None,
    since: Since = None,
    last: Annotated[
        int | None, Option(min=1, help="How many reports of each group the tables show.", show_default="20")
    ] = None,
    follow: Annotated[
        bool, Option("--follow", "-f", help="Also print new reports, a line each, until the trial ends.")
    ] = False,
    plot: Annotated[bool, Option("--plot", help="Draw curves, as `trial plot` does.")] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    fields: Fields = "",
) -> None:
    """Show what a trial reported."""
    form = choose_form(as_json, as_csv, fields)
    ranks = rank and source_named(rank)
    others = (superseded or None, last, follow or None, rank, since)
    if plot and (not form.is_table or any(each is not None for each in others)):
        raise click.BadParameter(
            "--plot draws all reports that count: give it without --json, --csv, --fields, --superseded, --rank, "
            "--since, --last and --follow"
        )
    if not form.is_table and last is not None:
        raise click.BadParameter("--last is for tables: --json and --csv print all reports")
    if follow and superseded:
        raise click.BadParameter("--follow shows reports in the order in which they come: leave out --superseded")
    if plot:
        from core_sdk._interfaces.cli.trial.plot import plot as draw_curves  # slow to import

        draw_curves([trial_id], group, metric)
        return
    home = open_home()
    if follow:
        home.trial(trial_id)  # an unknown one fails before anything is printed
        followed = _follow_reports(home, trial_id, group, metric or (), ranks)
        stretches = (list(_only_new(stretch, since)) for stretch in followed)
        _print_followed(stretches, form, num_last=last or _NUM_LAST)
        return
    with open_view(home, trial_id=trial_id) as view:
        view.trial(trial_id)
        found = reports_of(view, trial_id, group, metric or (), rank=ranks, with_superseded=superseded)
        print_reports(_only_new(found, since), form, with_superseded=superseded, num_last=last or _NUM_LAST)
        if ranks is None and form.is_table:
            _tell_of_other_ranks(view.outline(trial_id))


def reports_of(
    view: View,
    trial_id: int,
    group: str | None = None,
    metrics: Collection[str] = (),
    *,
    rank: Ranks = None,
    with_superseded: bool = False,
) -> Iterator[ReportRow]:
    """Returns the reports of a trial, of all groups if `group` is None, with all metrics if `metrics` is empty.

    Raises `NotRecordedError` for a group or a metric that was never reported, `CoreSDKError` for a rank.
    """
    reports = view.reports(trial_id, group=group, rank=rank, superseded=with_superseded)
    first = next(reports, None)
    if first is None:
        if group is not None:
            from core_sdk._analysis.charts.trials import check_group  # slow to import

            check_group(view, trial_id, group)
        if rank not in (None, "all"):
            of_group = "" if group is None else f" in group {group!r}"
            names = ", ".join(map(str, view.outline(trial_id).reporting_ranks)) or "none"
            raise CoreSDKError(
                f"{_who(rank)} of trial {trial_id} has reported nothing{of_group}. Who has reported: {names}."
            )
        return iter(())
    for name in metrics:
        # Series are found at once; values that are not numbers have none.
        series = view.series(trial_id, rank=None if rank == "all" else rank)
        known = [(one.group, one.name) for one in series if group in (None, one.group)]
        others = view.reports(trial_id, group=group, rank=rank)
        if metric_named(name, known) is None and not any(_chosen(report, [name]) for report in others):
            there = [each for _, each in known]
            raise NotRecordedError(f"trial {trial_id} has no metric {name!r} to show", "The metrics", there)
    return _only_metrics(chain([first], reports), metrics)


def _only_metrics(reports: Iterable[ReportRow], metrics: Collection[str]) -> Iterator[ReportRow]:
    """Yields the reports with only these metrics, or unchanged if `metrics` is empty."""
    for report in reports:
        if not metrics:
            yield report
        elif chosen := _chosen(report, metrics):
            yield msgspec.structs.replace(report, metrics=chosen)


def _chosen(report: ReportRow, metrics: Collection[str]) -> dict[str, Any]:
    """Returns the values of the metrics that are named, with their group or without it."""
    return {
        name: value for name, value in report.metrics.items() if name in metrics or f"{report.group}.{name}" in metrics
    }


def _only_new(reports: Iterable[ReportRow], since: float | None) -> Iterator[ReportRow]:
    return (report for report in reports if since is None or report.time >= since)


def _follow_reports(
    home: Home, trial_id: int, group: str | None, metrics: Collection[str], rank: Ranks
) -> Iterator[list[ReportRow]]:
    """Yields the reports until now, and then new ones until no attempt runs; each rank's in the order of its calls.

    Without a `rank`, each metric comes from the lowest rank that has reported it so far.
    """
    positions: defaultdict[Source, StreamPosition] = defaultdict(StreamPosition)
    lowest = _LowestRanks(home.experiment(home.trial(trial_id).read_record().experiment_id).read().searcher_metric)
    is_last = False
    while not is_last:
        # Asked before reading, so that what was reported before the end is read.
        attempts = attempt_rows(home.trial(trial_id))
        is_last = not any(attempt.is_running for attempt in attempts)
        found: list[ReportRow] = []
        for each in sorted({each for attempt in attempts for each in attempt.ranks}, key=in_order):
            while rank in (None, "all", each):
                stretch = read_reports(home.trial(trial_id), positions[each], each)
                if stretch.end == positions[each]:
                    break
                found += [report for report in stretch.reports if group in (None, report.group)]
                positions[each] = stretch.end
        if rank is None:
            found = [shown for report in found if (shown := lowest.only_shown(report)) is not None]
        yield list(_only_metrics(found, metrics))
        if not is_last:
            time.sleep(_POLL_INTERVAL_S)


class _LowestRanks:
    """The lowest rank that has reported each metric of each attempt so far; of a writer's metric, that writer."""

    def __init__(self, decides: SearcherMetric | None) -> None:
        self._decides = decides
        self._ranks: dict[tuple[int, str, str], Source] = {}

    def only_shown(self, report: ReportRow) -> ReportRow | None:
        """Returns the report with the metrics that no lower rank has reported; None if it has none of these."""
        shown = {name: value for name, value in report.metrics.items() if self._is_lowest(report, name)}
        if len(shown) == len(report.metrics):
            return report
        return msgspec.structs.replace(report, metrics=shown) if shown else None

    def _is_lowest(self, report: ReportRow, name: str) -> bool:
        if (decides := self._decides) and decides.writer and (report.group, name) == ("validation", decides.name):
            return report.rank == decides.writer
        key = report.attempt, report.group, name
        self._ranks[key] = min(self._ranks.get(key, report.rank), report.rank, key=in_order)
        return self._ranks[key] == report.rank


def _print_followed(stretches: Iterable[Sequence[ReportRow]], form: Form, *, num_last: int) -> None:
    """Prints a line for each report as it comes. As text, of the first stretch only the last `num_last`."""
    columns = form.fields or _CSV_COLUMNS
    if form.is_csv:
        print_csv([columns])
    for number, stretch in enumerate(stretches):
        if form.is_json:
            sys.stdout.writelines(f"{_json_text(report, form, with_superseded=False)}\n" for report in stretch)
        elif form.fields:
            print_csv(fields_as_csv(map(_json_object, stretch), form.fields))
        elif form.is_csv:
            print_csv(row[:-1] for report in stretch for row in _csv_rows(report))
        else:
            shown = stretch if number else stretch[-num_last:]
            sys.stdout.writelines(f"{printable(_line(report))}\n" for report in shown)
        sys.stdout.flush()


def _line(report: ReportRow) -> str:
    metrics = "  ".join(f"{name}={_text(value)}" for name, value in report.metrics.items())
    rank = f"{_who(report.rank)}  " if report.rank else ""
    return f"{report.steps_completed:>8}  {report.group}  {rank}{metrics}"


def _who(source: Source | None) -> str:
    return f"writer {source}" if isinstance(source, str) else f"rank {source}"


def _tell_of_other_ranks(outline: Outline) -> None:
    """Says which ranks and writers have reported the same metrics, of whom only the first is shown."""
    ranks = sorted({each for of in outline.ranks.values() if len(of) > 1 for each in of}, key=in_order)
    if ranks:
        names = ", ".join(map(_who, ranks))
        say(f"{names} have reported; of each metric the first of them is shown. --rank all shows all reports")


def print_reports(reports: Iterable[ReportRow], form: Form, *, with_superseded: bool, num_last: int) -> None:
    """Prints reports: tables have the last `num_last` of each group; JSON and CSV have all."""
    if form.is_table:
        _print_tables(reports, num_last)
    elif form.is_json:
        print_elements(_json_text(report, form, with_superseded) for report in reports)
    elif form.fields:
        print_fields_as_csv((_json_object(report, with_superseded) for report in reports), form.fields)
    else:
        rows = chain([[*_CSV_COLUMNS, "is_superseded"]], (row for report in reports for row in _csv_rows(report)))
        print_csv(row if with_superseded else row[:-1] for row in rows)


def _print_tables(reports: Iterable[ReportRow], num_last: int) -> None:
    """Prints a table for each group, with its last reports."""
    latest: defaultdict[str, deque[ReportRow]] = defaultdict(lambda: deque(maxlen=num_last))
    counts: defaultdict[str, int] = defaultdict(int)
    for report in reports:
        latest[report.group].append(report)
        counts[report.group] += 1
    for group, shown in latest.items():
        title = group if counts[group] == len(shown) else f"{group} (the last {len(shown)} of {counts[group]} reports)"
        print_table(_columns(shown), shown, title=title)
    if not latest:
        print("No reports yet.")


def _json_text(report: ReportRow, form: Form, with_superseded: bool) -> str:
    value = _json_object(report, with_superseded)
    return strict_json(chosen(value, form.fields) if form.fields else value)


def _json_object(report: ReportRow, with_superseded: bool = False) -> dict[str, Any]:
    fields = {name: getattr(report, name) for name in _JSON_FIELDS}
    return fields | {"is_superseded": report.is_superseded} if with_superseded else fields


def _csv_rows(report: ReportRow) -> Iterator[list[Any]]:
    """Yields a row for each metric."""
    start = [getattr(report, name) for name in _CSV_COLUMNS[:-2]]
    for name, value in report.metrics.items():
        shown = strict_json(value) if value is None or isinstance(value, bool) else value
        yield [*start, name, shown, report.is_superseded]


def _columns(reports: Iterable[ReportRow]) -> list[Column[ReportRow]]:
    names = dict.fromkeys(name for report in reports for name in report.metrics)
    rank = Column[ReportRow]("Rank", lambda report: report.rank, is_number=True)
    return [
        Column("Steps", lambda report: report.steps_completed, True),
        *map(_metric_column, names),
        Column("Attempt", lambda report: f"{report.attempt}{' (superseded)' if report.is_superseded else ''}", True),
        *([rank] if any(report.rank for report in reports) else []),
        Column("Time", lambda report: format_time(report.time)),
    ]


def _metric_column(name: str) -> Column[ReportRow]:
    return Column(name, lambda report: _text(report.metrics[name]) if name in report.metrics else "", is_number=True)


def _text(value: Any) -> str:
    return format_number(value) if type(value) in (int, float) else strict_json(_brief(value))


def _brief(value: Any) -> Any:
    """Returns the value with a word in place of each file of media."""
    if isinstance(value, MediaFile):
        return f"<{value.kind}>"
    if isinstance(value, dict):
        return {key: _brief(item) for key, item in value.items()}
    return [_brief(item) for item in value] if isinstance(value, list) else value
