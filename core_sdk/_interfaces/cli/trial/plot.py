"""`core-sdk trial plot`: the curves of trials."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any

import click

from core_sdk._home import open_view
from core_sdk._interfaces.cli._arguments import ChartMetrics, Formulas, Output, ReportGroup
from core_sdk._interfaces.cli._grouping import BandOption, CentreOption, GroupBy, XOption, parse_grouping, read_charts
from core_sdk._interfaces.cli._home import open_home
from core_sdk._interfaces.cli._ids import TrialIds
from core_sdk._interfaces.render.drawing import check_format, draw_charts, num_buckets
from core_sdk._interfaces.signatures import Option

if TYPE_CHECKING:
    from core_sdk._analysis.charts.svg import Look


def plot(
    trial_ids: TrialIds,
    group: ReportGroup = None,
    metric: ChartMetrics = None,
    formula: Formulas = None,
    x: XOption = "steps",
    group_by: GroupBy = None,
    centre: CentreOption = "mean",
    band: BandOption = "std",
    output: Output = None,
    title: Annotated[str | None, Option(help="The title, in a file.", show_default="the metric")] = None,
    x_label: Annotated[str, Option(metavar="TEXT", help="What is written below the axis, in a file.")] = "",
    y_label: Annotated[str, Option(metavar="TEXT", help="What is written next to the axis, in a file.")] = "",
    log_y: Annotated[bool, Option("--log-y", help="Make the vertical axis logarithmic, in a file.")] = False,
    size: Annotated[str, Option(metavar="WIDTHxHEIGHT", help="The pixels of each chart, in a file.")] = "800x340",
) -> None:
    """Draw the curves of trials, with one chart for each metric: in the terminal, or into a file.

    Steps from which a trial was resumed are marked if it is the only one, over steps. With --group-by, trials with the
    same value are one curve, as `core-sdk compare` explains.
    """
    grouping = parse_grouping(group_by, centre, band, in_terminal=output is None)
    look = _look(title, x_label, y_label, log_y, size)
    check_format(output)
    home = open_home()
    with open_view(home) as view:
        rows = [view.trial(trial_id) for trial_id in dict.fromkeys(trial_ids)]
        asked: dict[str, Any] = {"group": group, "metrics": metric or (), "formulas": formula or ()}
        charts = read_charts(home, view, rows, grouping, num_buckets(output), **asked, x=x)
    draw_charts(charts, output, look)


def _look(title: str | None, x_label: str, y_label: str, log_y: bool, size: str) -> Look | None:
    """Returns how a file is drawn, or None if nothing was asked for."""
    from core_sdk._analysis.charts.svg import Look

    if (found := re.fullmatch(r"(\d+)x(\d+)", size)) is None or not all(
        200 <= int(one) <= 10_000 for one in found.groups()
    ):
        raise click.BadParameter(
            f"a size is two numbers of pixels from 200 on, such as 600x400, not {size!r}", param_hint="--size"
        )
    look = Look(title, x_label, y_label, log_y, int(found[1]), int(found[2]))
    return None if look == Look() else look
