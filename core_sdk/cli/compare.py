"""`core-sdk compare`: trials side by side, or groups of trials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from core_sdk.cli._arguments import Metrics, Output, parse_experiment
from core_sdk.cli._grouping import BandOption, Best, CentreOption, GroupBy, parse_grouping
from core_sdk.cli.render.output import AsJson

if TYPE_CHECKING:
    from core_sdk.tracking import View


def compare(
    trial_ids: Annotated[
        list[int] | None, typer.Argument(metavar="ID…", min=1, help="The trials' numbers.", show_default=False)
    ] = None,
    experiment: Annotated[str | None, typer.Option(help="All trials of this experiment, by id or name.")] = None,
    metric: Metrics = None,
    group_by: GroupBy = None,
    centre: CentreOption = "mean",
    band: BandOption = "std",
    best: Best = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Show hyperparameters and last metrics of trials side by side, what differs first.

    With --metric or --output also the curves, those of one metric in one chart.

    With --group-by, a row for each group of trials: how many there are, the best one, and the mean and the standard
    deviation of each metric. The curve of a group is its mean or median. Trials are joined at the steps that they have
    in common, or in bins of steps where they have few in common. Without ID and --experiment, all trials are grouped.
    """
    from core_sdk.charts.trials import trial_charts
    from core_sdk.cli._home import open_tracker
    from core_sdk.cli.render.drawing import check_format, draw_charts, num_buckets
    from core_sdk.cli.render.json import print_list
    from core_sdk.cli.trial.groups import group_object, print_groups
    from core_sdk.cli.trial.listing import json_object, print_comparison
    from core_sdk.tracking.finding.facts import read_facts

    if as_json and (output or (metric and not group_by)):
        raise typer.BadParameter("--json has no curves: give it without --metric and --output")
    grouping = parse_grouping(group_by, centre, band, best, in_terminal=output is None)
    if grouping is None and best is not None:
        raise typer.BadParameter("--best is for groups: give --group-by", param_hint="--best")
    tracker = open_tracker()
    with tracker.view() as view:
        chosen = _chosen_ids(view, trial_ids or [], experiment, is_grouped=grouping is not None)
        found = read_facts(view, view.trials(trial_ids=chosen) if grouping else [view.trial(one) for one in chosen])
        check_format(output)
        if grouping is None:
            if as_json:
                print_list(json_object(one) for one in found)
                return
            print_comparison(found)
            if metric or output:
                charts = trial_charts(view, chosen, metrics=metric or (), max_buckets=num_buckets(output))
                draw_charts(charts, output)
            return
        groups, ranking = grouping.groups(tracker, found)
        if as_json:
            print_list(group_object(group, grouping.names, ranking) for group in groups)
            return
        print_groups(groups, grouping.names, ranking, metric or ())
        if metric or output:
            rows = [one.row for one in found]
            draw_charts(grouping.charts(tracker, view, rows, num_buckets(output), metrics=metric or ()), output)


def _chosen_ids(view: View, trial_ids: list[int], experiment: str | None, *, is_grouped: bool) -> list[int]:
    if trial_ids and experiment is not None:
        raise typer.BadParameter("give the numbers of trials or --experiment, not both")
    if trial_ids:
        return [view.trial(trial_id).trial_id for trial_id in dict.fromkeys(trial_ids)]
    if experiment is None and not is_grouped:
        raise typer.BadParameter("give the numbers of trials, or --experiment")
    experiment_id = None if experiment is None else view.experiment(parse_experiment(experiment)).experiment_id
    return [row.trial_id for row in view.trials(experiment_id) if not row.is_archived]
