"""`core-sdk compare`: trials side by side."""

from __future__ import annotations

import typer

from core_sdk.cli._arguments import Metrics, Output, TrialIds
from core_sdk.cli.render.output import AsJson


def compare(trial_ids: TrialIds, metric: Metrics = None, output: Output = None, as_json: AsJson = False) -> None:
    """Show hyperparameters and last metrics of trials side by side, what differs first.

    With --metric or --output also the curves, those of one metric in one chart.
    """
    from core_sdk.charts.trials import trial_charts
    from core_sdk.cli._home import open_tracker
    from core_sdk.cli.render.drawing import check_format, draw_charts, num_buckets
    from core_sdk.cli.render.json import print_list
    from core_sdk.cli.trial.listing import json_object, print_comparison
    from core_sdk.tracking.finding.facts import read_facts

    trial_ids = list(dict.fromkeys(trial_ids))
    if as_json and (metric or output):
        raise typer.BadParameter("--json has no curves: give it without --metric and --output")
    with open_tracker().view() as view:
        found = read_facts(view, [view.trial(trial_id) for trial_id in trial_ids])
        if as_json:
            print_list(json_object(one) for one in found)
            return
        print_comparison(found)
        if metric or output:
            check_format(output)
            draw_charts(trial_charts(view, trial_ids, metrics=metric or (), max_buckets=num_buckets(output)), output)
