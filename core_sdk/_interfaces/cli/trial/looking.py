"""The commands that show trials, or copy what they have recorded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import click

from core_sdk._home import Home, View, open_view
from core_sdk._home.finding.best import deciding_metric_of_trial
from core_sdk._home.finding.facts import read_facts
from core_sdk._home.opening import HomeElsewhere
from core_sdk._interfaces.cli._arguments import BestMetric, Since, SmallerIsBetter, Sort, Where
from core_sdk._interfaces.cli._home import hear_of_slurm, in_home, open_home
from core_sdk._interfaces.cli._ids import OfExperiment, TrialId, TrialIds
from core_sdk._interfaces.cli._messages import say
from core_sdk._interfaces.cli.trial.listing import choose_trials, print_trials, with_searched
from core_sdk._interfaces.render.form import AsCsv, AsJson, Fields, Limit, choose_form
from core_sdk._interfaces.render.output import limited, print_one
from core_sdk._interfaces.signatures import Option


def list_trials(
    experiment: OfExperiment = None,
    where: Where = "",
    label: Annotated[
        list[str] | None, Option(help="Only those with this label; may be repeated: with all of them.")
    ] = None,
    sort: Sort = "",
    column: Annotated[
        list[str] | None, Option(metavar="NAME", help="Show this as the first column; may be repeated.")
    ] = None,
    every: Annotated[bool, Option("--all", help="Also those that are archived.")] = False,
    since: Since = None,
    limit: Limit = None,
    quiet: Annotated[
        bool, Option("--quiet", "-q", help="Print only their numbers: `core-sdk trial archive $(… -q)`.")
    ] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    fields: Fields = "",
) -> None:
    """List trials, with their hyperparameters and the last values of their metrics.

    Columns whose values differ between the trials come first. A table shows as many as the width of the terminal
    allows; --json and --csv have all. With --since, trials that run are new.

    NAME is a hyperparameter (lr, model.layers), a metric (accuracy, training.loss), the extreme of a metric
    (min.loss, max.accuracy), or one of id, experiment, state, steps, attempts, reason, label, name, notes. A condition
    compares names with values by = != < <= > >= contains, and joins comparisons by and, or, not and parentheses. Text
    with spaces stands in quotes. A trial that lacks a name fulfils no comparison with it.
    """
    form = choose_form(as_json, as_csv, fields)
    if quiet and not form.is_table:
        raise click.BadParameter("give --quiet, --json, --csv or --fields, one of them")
    home = open_home()
    with open_view(home) as view:
        _hear_of_waiting(home, view, experiment)
        most = limit or 0 if quiet else limit
        if where or label or sort or column or since is not None:
            chosen = choose_trials(
                view,
                view.trials(experiment),
                labels=label or (),
                where=where,
                sort=sort,
                columns=column or (),
                with_archived=every,
                since=since,
            )
            rows, form = limited(chosen.rows, most, form, are_ordered=bool(sort))
            trial_ids, names = [row.trial_id for row in rows], chosen.names
            found = [] if quiet else chosen.facts_of(view, rows)
        else:
            trial_ids, form = limited(view.trial_ids(experiment, "all" if every else "listed"), most, form)
            found = [] if quiet else read_facts(view, view.trials(trial_ids=trial_ids))
            names = []
        has_trials = bool(trial_ids or view.trial_ids(experiment))
    if quiet:
        sys.stdout.writelines(f"{trial_id}\n" for trial_id in trial_ids)
        return
    if not found and form.is_table:
        nothing = f"No trials yet {in_home(home)}: `core-sdk run -- python train.py` starts one."
        click.echo("No trial fulfils the condition." if has_trials else nothing)
        return
    if experiment is not None and form.is_table and not isinstance(home, HomeElsewhere):
        names = with_searched(names, home.experiment(experiment).read().searcher_metric, found)
    print_trials(found, names, form)


def _hear_of_waiting(home: Home, view: View, experiment_id: int | None) -> None:
    """Records which trials were canceled while they waited in Slurm's queue, and updates the view if one was."""
    if isinstance(home, HomeElsewhere) or home.is_gathered:
        return
    waiting = view.trial_ids(experiment_id, "waiting")
    if waiting and hear_of_slurm(home, view.trials(trial_ids=waiting)):
        view.refresh()


def describe(
    trial_id: TrialId,
    with_metrics: Annotated[
        bool, Option("--metrics", help="Also what it reported, as `trial metrics` shows it.")
    ] = False,
    as_json: AsJson = False,
    fields: Fields = "",
) -> None:
    """Show what is known of a trial, with the code and the machine of its newest attempt."""
    from core_sdk._interfaces.cli.trial.description import describe_trial

    form = choose_form(as_json, fields=fields)
    if with_metrics and form.is_json:
        raise click.BadParameter("--metrics is for tables: `trial metrics --json` prints all reports")
    home = open_home()
    value, properties = describe_trial(home, trial_id)
    print_one(value, properties, form)
    if with_metrics:
        from core_sdk._interfaces.cli.trial.reports import metrics

        click.echo()
        metrics(trial_id)


def download(
    trial_id: TrialId,
    best: Annotated[bool, Option("--best", help="Of its best validation.", show_default="latest")] = False,
    latest: Annotated[bool, Option("--latest", help="The newest one, which is the default.")] = False,
    metric: BestMetric = None,
    smaller_is_better: SmallerIsBetter = None,
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="DIR", help="Where to.", show_default="checkpoints/ID"),
    ] = None,
) -> None:
    """Copy the files of a trial's newest or best checkpoint to a directory, and verify each of them."""
    from core_sdk.client import Trial  # slow to import

    if best and latest:
        raise click.BadParameter("give --best or --latest, not both")
    home = open_home()
    with open_view(home) as view:
        row = view.trial(trial_id)
        by = deciding_metric_of_trial(home, row, metric, smaller_is_better)
    chosen = (by.name, by.smaller_is_better) if by else (None, None)
    try:
        checkpoint = Trial(home, row).select_checkpoint(not best, best, None, *chosen)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    click.echo(checkpoint.download(output))


def tensorboard(
    trial_ids: TrialIds,
    port: Annotated[int, Option(min=0, max=65535, help="0: any free one.")] = 6006,
    export: Annotated[
        Path | None, Option(metavar="DIR", help="Write event files into this directory, and show nothing.")
    ] = None,
) -> None:
    """Show the curves and media of trials in TensorBoard, also while they train, until Ctrl-C."""
    from core_sdk._analysis.tensorboard import showing  # needs TensorBoard

    home = open_home()
    trials = [home.trial(trial_id) for trial_id in trial_ids]
    if export is not None:
        showing.export(trials, export)
        return
    try:
        showing.show(trials, port, lambda url: say(f"TensorBoard is at {url}; Ctrl-C ends it"))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--port") from None
    except KeyboardInterrupt:
        return
