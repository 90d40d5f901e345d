"""The options of commands that draw the curves of trials, or of groups of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import click

from core_sdk._interfaces.signatures import Option

if TYPE_CHECKING:
    from core_sdk._analysis.charts.chart import Chart
    from core_sdk._analysis.charts.grouped_curves import Band, Centre
    from core_sdk._ground.records import SearcherMetric
    from core_sdk._home import Home, View
    from core_sdk._home.finding.facts import Facts
    from core_sdk._home.finding.groups import TrialGroup
    from core_sdk._home.rows import TrialRow

GroupBy = Annotated[
    list[str] | None,
    Option(
        metavar="NAME",
        help="Make one group of the trials with the same value: of a hyperparameter, label, or another name. May be "
        "repeated.",
        show_default=False,
    ),
]
CentreOption = Annotated[str, Option("--centre", metavar="mean|median", help="The curve of a group; with --group-by.")]
BandOption = Annotated[
    str,
    Option(
        "--band", metavar="std|sem|range|none", help="The band about the curve of a group, in files; with --group-by."
    ),
]
XOption = Annotated[
    str,
    Option(
        "--x",
        metavar="steps|time|epochs|METRIC",
        help="Draw curves over this: time is that since the start of each trial.",
    ),
]
Best = Annotated[
    str | None,
    Option(
        metavar="NAME",
        help="Which trial of a group is the best: min.METRIC or max.METRIC; with --group-by.",
        show_default="the searcher's",
    ),
]


@dataclass(frozen=True)
class Grouping:
    """The grouping that the options ask for."""

    names: list[str]
    centre: Centre
    band: Band
    best: str | None = None

    def groups(self, home: Home, found: list[Facts]) -> tuple[list[TrialGroup], SearcherMetric | None]:
        """Returns the groups, and by what their best trials are found. Raises `click.BadParameter`."""
        from core_sdk._analysis.charts.groups import read_groups

        try:
            return read_groups(home, found, self.names, self.best)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None


def read_charts(
    home: Home,
    view: View,
    rows: Sequence[TrialRow],
    grouping: Grouping | None,
    max_points: int,
    *,
    group: str | None = None,
    metrics: Sequence[str] = (),
    formulas: Sequence[str] = (),
    x: str,
) -> list[Chart]:
    """Returns a chart for each metric and formula, with a curve for each trial, or for each of their groups.

    Raises `click.BadParameter`, `NotRecordedError` or `NothingToDrawError`.
    """
    from core_sdk._analysis.charts.formula import FormulaError
    from core_sdk._analysis.charts.groups import group_charts
    from core_sdk._analysis.charts.trials import trial_charts
    from core_sdk._home.finding.facts import read_facts

    chosen: dict[str, Any] = {"group": group, "metrics": metrics, "x": x}
    if grouping is None:
        trial_ids = [row.trial_id for row in rows]
        try:
            return trial_charts(view, trial_ids, formulas=formulas, max_buckets=max_points, **chosen)
        except FormulaError as error:
            raise click.BadParameter(str(error), param_hint="--formula") from None
    if formulas:
        raise click.BadParameter(
            "a formula has no curve of a group: give it without --group-by", param_hint="--formula"
        )
    groups, _ = grouping.groups(home, read_facts(view, rows))
    chosen |= {"centre": grouping.centre, "band": grouping.band}
    return group_charts(view, groups, grouping.names, max_points=max_points, **chosen)


def parse_grouping(
    group_by: list[str] | None, centre: str, band: str, best: str | None = None, *, in_terminal: bool
) -> Grouping | None:
    """Returns what the options ask for, or None without groups. A terminal has no room for bands.

    Raises `click.BadParameter`.
    """
    from core_sdk._analysis.charts.grouped_curves import Band, Centre

    for option, value, choices in (("--centre", centre, get_args(Centre)), ("--band", band, get_args(Band))):
        if value not in choices:
            raise click.BadParameter(f"{value!r} is none of {', '.join(choices)}", param_hint=option)
    if not group_by:
        return None
    return Grouping(
        list(dict.fromkeys(group_by)), cast("Centre", centre), "none" if in_terminal else cast("Band", band), best
    )
