"""`core-sdk experiment trials`, `best`, `plot`, `logs`, `config` and `download-code`."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

import click

from core_sdk._ground.records import format_number
from core_sdk._home import Home, View, open_view
from core_sdk._home.finding.best import best_trial, deciding_metric
from core_sdk._home.finding.facts import read_facts
from core_sdk._home.finding.groups import grouped_metric
from core_sdk._home.logs.stream import LineCutter, LogReader
from core_sdk._interfaces.cli._arguments import BestMetric, ChartMetrics, FollowOutput, Output, SmallerIsBetter
from core_sdk._interfaces.cli._group import Group
from core_sdk._interfaces.cli._grouping import BandOption, CentreOption, GroupBy, XOption, parse_grouping, read_charts
from core_sdk._interfaces.cli._home import make_home, open_home
from core_sdk._interfaces.cli._ids import Experiment, SubmittedId, check_submitted
from core_sdk._interfaces.cli.trial.listing import json_object, print_trials
from core_sdk._interfaces.render.drawing import check_format, draw_charts, num_buckets
from core_sdk._interfaces.render.form import AsCsv, AsJson, Fields, Limit, choose_form
from core_sdk._interfaces.render.output import Properties, limited, output_writer, print_object, print_one
from core_sdk._interfaces.signatures import Option

_PAUSE_S = 0.5


def register(app: Group) -> None:
    for command in (trials, best, plot, logs, config, download):
        app.command(reads_homes=True)(command)
    app.command("download-code")(download_code)
    app.command(hidden=True)(checkpoints)


def trials(
    experiment: Experiment,
    limit: Limit = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    fields: Fields = "",
) -> None:
    """List the trials of an experiment, those with the best values of its searcher's metric first."""
    form = choose_form(as_json, as_csv, fields)
    home = open_home()
    metric = home.experiment(experiment).read().searcher_metric
    with open_view(home) as view:
        found = read_facts(view, view.trials(experiment))
    names = []
    if metric is not None:
        metric = grouped_metric(found, metric)
        name = metric.best_name
        best = metric.best_first(sorted(found, key=lambda one: one.row.trial_id), lambda one: one.metric(name))
        names = [name] if best else []
        found = [*best, *(one for one in found if one.metric(name) is None)]
    found, form = limited(found, limit, form, are_ordered=bool(names))
    print_trials(found, names, form, names_experiment=False)


def checkpoints(
    experiment: Experiment,
    best: Annotated[int | None, Option(min=1, metavar="N", help="Only the N best.")] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    fields: Fields = "",
) -> None:
    """List the checkpoints of an experiment, as `checkpoint list --experiment` does."""
    from core_sdk._interfaces.cli.checkpoint.commands import list_checkpoints

    list_checkpoints(experiment=experiment, best=best, as_json=as_json, as_csv=as_csv, fields=fields)


def download(
    experiment: Experiment,
    output: Annotated[
        Path, Option("--output", "-o", "--output-dir", metavar="DIR", help="Each goes to DIR/ID.")
    ] = Path("checkpoints"),
    top_n: Annotated[int, Option(min=1, metavar="N", help="Of the N best trials, the best one of each.")] = 1,
    metric: BestMetric = None,
    smaller_is_better: SmallerIsBetter = None,
    quiet: Annotated[bool, Option("--quiet", "-q", help="Print only the directories.")] = False,
) -> None:
    """Copy the files of an experiment's best checkpoints to directories, and verify each of them."""
    from core_sdk.client import Experiment as Chosen  # slow to import

    home = open_home()
    by = deciding_metric(home, experiment, metric, smaller_is_better)
    chosen = (by.name, by.smaller_is_better) if by else (None, None)
    try:
        with open_view(home) as view:
            found = Chosen(home, view.experiment(experiment)).top_n_checkpoints(top_n, *chosen)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
    for checkpoint in found:
        directory = checkpoint.download(output / checkpoint.uuid)
        click.echo(directory if quiet else f"trial {checkpoint.trial_id}: {directory}")


def best(
    experiment: Experiment,
    metric: BestMetric = None,
    smaller_is_better: SmallerIsBetter = None,
    as_json: AsJson = False,
    fields: Fields = "",
) -> None:
    """Show the best trial of an experiment, with its hyperparameters and the checkpoint of its best value.

    Where none was saved at that value, it names the best one that was validated.
    """
    form = choose_form(as_json, fields=fields)
    home = open_home()
    with open_view(home) as view:
        found = best_trial(home, view, experiment, metric, smaller_is_better)
        if found is None:
            raise click.BadParameter(why_no_best(home, view, experiment, metric))
        (facts,) = read_facts(view, [view.trial(found.trial_id)])
    properties: Properties = {
        "Trial": found.trial_id,
        found.metric: format_number(found.value),
        "Steps": found.steps_completed,
        "Hyperparameters": [f"{name}: {format_number(value)}" for name, value in facts.hparams.items()],
        "Checkpoint": found.checkpoint_text,
    }
    print_one(json_object(facts) | {"best": found}, properties, form)


def plot(
    experiment: Experiment,
    metric: ChartMetrics = None,
    x: XOption = "steps",
    group_by: GroupBy = None,
    centre: CentreOption = "mean",
    band: BandOption = "std",
    output: Output = None,
) -> None:
    """Draw the searcher's metric of all trials in one chart: in the terminal, or into a file.

    The rungs are marked, and crosses show where the search has stopped a trial. With --group-by, trials with the same
    value are one curve, as `core-sdk compare` explains; --metric then draws other metrics, and --x over another axis.
    """
    grouping = parse_grouping(group_by, centre, band, in_terminal=output is None)
    check_format(output)
    home = open_home()
    if grouping is not None:
        searchers = home.experiment(experiment).read().searcher_metric
        with open_view(home) as view:
            rows = view.trials(experiment)
            shown = metric or ([grouped_metric(read_facts(view, rows), searchers).name] if searchers else [])
            draw_charts(read_charts(home, view, rows, grouping, num_buckets(output), metrics=shown, x=x), output)
        return
    if metric or x != "steps":
        raise click.BadParameter("--metric and --x are for groups: `trial plot` draws any metric of trials")
    from core_sdk._analysis.charts.search import search_chart
    from core_sdk._execution.experiments.following import Follower
    from core_sdk._execution.experiments.picture import read_picture

    check_submitted(experiment)
    picture = read_picture(Follower(home, experiment))
    with open_view(home) as view:
        chart = search_chart(picture, view, num_buckets(output))
    draw_charts([chart] if chart.curves else [], output)


def logs(
    experiment: Experiment,
    follow: FollowOutput = False,
) -> None:
    """Print the output of an experiment's trials; each line says whose it is."""
    home, write = open_home(), output_writer()
    readers: dict[int, tuple[LogReader, LineCutter]] = {}
    while True:
        # Asked before reading, so that what was written before the end is printed.
        with open_view(home) as view:
            row, trial_ids = view.experiment(experiment), view.trial_ids(experiment)
        has_ended = not follow or (row.search.has_ended if row.search else row.state not in ("ACTIVE", "QUEUED"))
        for trial_id in trial_ids:
            reader, cutter = readers.setdefault(trial_id, (LogReader(home, trial_id), LineCutter()))
            for line in cutter.cut(reader.read(), is_last=has_ended):
                write(b"[trial=%d] %b\n" % (trial_id, line))
        if has_ended:
            return
        time.sleep(_PAUSE_S)


def config(
    experiment: SubmittedId,
    original: Annotated[bool, Option("--original", help="As its author wrote it, with comments and secrets.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the configuration of an experiment, with all defaults; keys and secrets are masked."""
    from core_sdk._execution.experiments.submitted import SubmittedExperiment
    from core_sdk._ground.config import from_mapping, masked, to_mapping, to_yaml

    submitted = SubmittedExperiment(open_home(), experiment)
    if original:
        if as_json:
            raise click.BadParameter("--original is the text of a YAML file: give it without --json")
        click.echo(submitted.folder.read_original_config().decode(errors="replace"), nl=False)
        return
    values = masked(to_mapping(submitted.config))
    if as_json:
        print_object(values)
    else:
        click.echo(to_yaml(from_mapping(values).config), nl=False)


def download_code(
    experiment: SubmittedId,
    output: Annotated[
        Path | None,
        Option("--output", "-o", metavar="DIR", help="A new directory.", show_default="experiment-ID-code"),
    ] = None,
    archive_in: Annotated[
        Path | None,
        Option(
            "--output-dir",
            metavar="DIR",
            exists=True,
            file_okay=False,
            help="Copy the archive into this directory instead, as experiment_ID_model_def.tgz.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Unpack the code of an experiment, or copy its archive."""
    from core_sdk._execution.experiments.code import check_archive, unpack
    from core_sdk.errors import ExperimentError

    home = make_home()
    code = home.experiment(experiment).read_submission().code
    if code is None:
        raise ExperimentError.of(experiment, "has no code of its own: its trials run where it was submitted")
    if archive_in is not None:
        if output is not None:
            raise click.BadParameter("give --output or --output-dir, not both")
        check_archive(home, code)
        path = archive_in / f"experiment_{experiment}_model_def.tgz"
        shutil.copyfile(home.code_archive(code), path)
    else:
        path = output or Path(f"experiment-{experiment}-code")
        unpack(home, code, path)
    what = "directory" if archive_in is None else "archive"
    print_one({what: str(path), "sha256": code}, str(path), choose_form(as_json))


def why_no_best(home: Home, view: View, experiment_id: int, metric: str | None) -> str:
    """Returns the words for an experiment of which no trial is the best by `metric`, or by the searcher's."""
    recorded = home.experiment(experiment_id).read().searcher_metric
    name = metric or (recorded and recorded.name)
    why = f"no trial has reported a number for {name}" if name else "the experiment has no searcher's metric"
    names = sorted(
        each if group == "validation" else f"{group}.{each}" for group, each in view.metric_names(experiment_id)
    )
    return f"{why}; --metric names one of: {', '.join(names)}" if names else f"{why}, and no other metric was reported"
