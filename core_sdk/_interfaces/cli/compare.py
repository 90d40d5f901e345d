"""`core-sdk compare`: trials side by side, or groups of trials."""

from __future__ import annotations

from typing import Annotated, Any

import click

from core_sdk._home import open_view
from core_sdk._interfaces.cli._arguments import ChartMetrics, Formulas, Output, Sort, Where
from core_sdk._interfaces.cli._grouping import (
    BandOption,
    Best,
    CentreOption,
    GroupBy,
    XOption,
    parse_grouping,
    read_charts,
)
from core_sdk._interfaces.cli._ids import MaybeTrialIds, OfExperiment
from core_sdk._interfaces.render.form import AsJson, Fields, choose_form
from core_sdk._interfaces.signatures import Option


def compare(
    trial_ids: MaybeTrialIds = None,
    experiment: OfExperiment = None,
    where: Where = "",
    sort: Sort = "",
    first: Annotated[int | None, Option(min=1, metavar="N", help="Only the first N of them.")] = None,
    metric: ChartMetrics = None,
    formula: Formulas = None,
    x: XOption = "steps",
    group_by: GroupBy = None,
    centre: CentreOption = "mean",
    band: BandOption = "std",
    best: Best = None,
    output: Output = None,
    as_json: AsJson = False,
    fields: Fields = "",
) -> None:
    """Show hyperparameters and last metrics of trials side by side, what differs first.

    With --metric, --formula or --output also the curves, with one chart for each metric, over steps or --x.

    With --group-by, a row for each group of trials: how many there are, the best one, and the mean and the standard
    deviation of each metric. The curve of a group is its mean or median. Trials are joined at the steps, or the
    other --x, that they have in common, or in bins where they have few in common.

    Instead of ID, --experiment, --where, --sort and --first choose trials, as in `core-sdk trial list`. Without any of
    them, all trials are grouped.
    """
    from core_sdk._home.finding.facts import read_facts
    from core_sdk._interfaces.cli._home import open_home
    from core_sdk._interfaces.cli.trial.groups import group_object, print_groups
    from core_sdk._interfaces.cli.trial.listing import choose_trials, json_object, print_comparison
    from core_sdk._interfaces.render.drawing import check_format, draw_charts, num_buckets
    from core_sdk._interfaces.render.output import print_list

    has_curves = metric or formula or output
    form = choose_form(as_json, fields=fields)
    if form.is_json and (output or formula or (metric and not group_by)):
        raise click.BadParameter("--json has no curves: give it without --metric, --formula and --output")
    if x != "steps" and not has_curves:
        raise click.BadParameter("--x is for curves: give --metric, --formula or --output", param_hint="--x")
    grouping = parse_grouping(group_by, centre, band, best, in_terminal=output is None)
    if grouping is None and best is not None:
        raise click.BadParameter("--best is for groups: give --group-by", param_hint="--best")
    has_options = experiment is not None or where or sort or first is not None
    if trial_ids and has_options:
        raise click.BadParameter("give the numbers of trials, or --experiment, --where, --sort and --first, not both")
    if not (trial_ids or has_options or grouping):
        raise click.BadParameter("give the numbers of trials, or --experiment, --where or --first")
    home = open_home()
    with open_view(home) as view:
        if trial_ids:
            found = read_facts(view, [view.trial(trial_id) for trial_id in dict.fromkeys(trial_ids)])
        else:
            chosen = choose_trials(view, view.trials(experiment), where=where, sort=sort)
            found = chosen.facts_of(view, chosen.rows[:first])
        check_format(output)
        if grouping is not None:
            groups, ranking = grouping.groups(home, found)
        if form.is_json and grouping is not None:
            print_list((group_object(group, grouping.names, ranking) for group in groups), form.fields)
        elif form.is_json:
            print_list(map(json_object, found), form.fields)
        elif grouping is not None:
            print_groups(groups, grouping.names, ranking, metric or ())
        else:
            print_comparison(found)
        if form.is_table and has_curves:
            rows = [one.row for one in found]
            asked: dict[str, Any] = {"metrics": metric or (), "formulas": formula or ()}
            charts = read_charts(home, view, rows, grouping, num_buckets(output), **asked, x=x)
            draw_charts(charts, output)
