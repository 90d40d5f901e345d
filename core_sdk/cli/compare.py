"""`core-sdk compare`: trials side by side, or groups of trials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from core_sdk.cli._arguments import ChartMetrics, Output, Sort, Where, parse_experiment
from core_sdk.cli._grouping import BandOption, Best, CentreOption, GroupBy, XOption, parse_grouping
from core_sdk.cli._trials import MaybeTrialIds
from core_sdk.cli.render.output import AsJson
from core_sdk.tracking import open_view

if TYPE_CHECKING:
    from core_sdk.tracking import View
    from core_sdk.tracking.finding.facts import Facts


def compare(
    trial_ids: MaybeTrialIds = None,
    experiment: Annotated[str | None, typer.Option(help="All trials of this experiment, by id or name.")] = None,
    where: Where = "",
    sort: Sort = "",
    first: Annotated[int | None, typer.Option(min=1, metavar="N", help="Only the first N of them.")] = None,
    metric: ChartMetrics = None,
    x: XOption = "steps",
    group_by: GroupBy = None,
    centre: CentreOption = "mean",
    band: BandOption = "std",
    best: Best = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Show hyperparameters and last metrics of trials side by side, what differs first.

    With --metric or --output also the curves, those of one metric in one chart, over steps or --x.

    With --group-by, a row for each group of trials: how many there are, the best one, and the mean and the standard
    deviation of each metric. The curve of a group is its mean or median. Trials are joined at the steps, or the
    other --x, that they have in common, or in bins where they have few in common.

    Instead of ID, --experiment, --where, --sort and --first choose trials, as in `core-sdk trial list`. Without any of
    them, all trials are grouped.
    """
    from core_sdk.charts.trials import trial_charts
    from core_sdk.cli._home import open_home
    from core_sdk.cli.render.drawing import check_format, draw_charts, num_buckets
    from core_sdk.cli.render.json import print_list
    from core_sdk.cli.trial.groups import group_object, print_groups
    from core_sdk.cli.trial.listing import json_object, print_comparison

    if as_json and (output or (metric and not group_by)):
        raise typer.BadParameter("--json has no curves: give it without --metric and --output")
    if x != "steps" and not (metric or output):
        raise typer.BadParameter("--x is for curves: give --metric or --output", param_hint="--x")
    grouping = parse_grouping(group_by, centre, band, best, in_terminal=output is None)
    if grouping is None and best is not None:
        raise typer.BadParameter("--best is for groups: give --group-by", param_hint="--best")
    home = open_home()
    with open_view(home) as view:
        found = _choose(view, trial_ids or [], experiment, where, sort, first, is_grouped=grouping is not None)
        chosen = [one.row.trial_id for one in found]
        check_format(output)
        if grouping is None:
            if as_json:
                print_list(json_object(one) for one in found)
                return
            print_comparison(found)
            if metric or output:
                charts = trial_charts(view, chosen, metrics=metric or (), x=x, max_buckets=num_buckets(output))
                draw_charts(charts, output)
            return
        groups, ranking = grouping.groups(home, found)
        if as_json:
            print_list(group_object(group, grouping.names, ranking) for group in groups)
            return
        print_groups(groups, grouping.names, ranking, metric or ())
        if metric or output:
            rows = [one.row for one in found]
            charts = grouping.charts(home, view, rows, num_buckets(output), metrics=metric or (), x=x)
            draw_charts(charts, output)


def _choose(
    view: View,
    trial_ids: list[int],
    experiment: str | None,
    where: str,
    sort: str,
    first: int | None,
    *,
    is_grouped: bool,
) -> list[Facts]:
    from core_sdk.cli.trial.listing import choose_trials
    from core_sdk.tracking.finding.facts import read_facts

    has_options = experiment is not None or where or sort or first is not None
    if trial_ids and has_options:
        raise typer.BadParameter("give the numbers of trials, or --experiment, --where, --sort and --first, not both")
    if trial_ids:
        return read_facts(view, [view.trial(trial_id) for trial_id in dict.fromkeys(trial_ids)])
    if not has_options and not is_grouped:
        raise typer.BadParameter("give the numbers of trials, or --experiment, --where or --first")
    experiment_id = None if experiment is None else view.experiment(parse_experiment(experiment)).experiment_id
    found, _ = choose_trials(view, experiment_id, labels=(), where=where, sort=sort, columns=(), with_archived=False)
    return found[:first]
