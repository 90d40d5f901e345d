"""The commands that show trials, or copy what they have recorded."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core_sdk.cli._arguments import ChartMetrics, Formulas, Metrics, Output, SmallerIsBetter, Sort, Where
from core_sdk.cli._grouping import BandOption, CentreOption, GroupBy, XOption, parse_grouping, read_charts
from core_sdk.cli._home import open_home
from core_sdk.cli._ids import OfExperiment, TrialId, TrialIds
from core_sdk.cli._messages import say
from core_sdk.cli.render.drawing import check_format, draw_charts, num_buckets
from core_sdk.cli.render.output import AsCsv, AsJson, Format, choose_format, print_one
from core_sdk.cli.trial import media, reports
from core_sdk.cli.trial.best import deciding_metric
from core_sdk.cli.trial.description import describe_trial
from core_sdk.cli.trial.listing import choose_trials, print_trials, with_searched
from core_sdk.cli.trial.logs import print_logs
from core_sdk.records import MEDIA_KINDS
from core_sdk.tracking import open_view
from core_sdk.tracking.logs.levels import LEVELS
from core_sdk.tracking.rows import Ranks, source_named

if TYPE_CHECKING:
    from core_sdk.charts.svg import Look

Group = Annotated[
    str | None, typer.Option(help="Only this group; the profiler's groups are shown only when asked for.")
]

_NUM_LAST = 20
_NO_TRIALS = "No trials yet: `core-sdk run -- python train.py` starts one."


def register(app: typer.Typer) -> None:
    app.command("list")(list_trials)
    app.command()(describe)
    app.command()(metrics)
    app.command("media")(media_of)
    app.command("plot")(plot_trials)
    for command in (logs, download, tensorboard):
        app.command()(command)


def list_trials(
    experiment: OfExperiment = None,
    where: Where = "",
    label: Annotated[
        list[str] | None, typer.Option(help="Only those with this label; may be repeated: with all of them.")
    ] = None,
    sort: Sort = "",
    column: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Show this as the first column; may be repeated.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that are archived.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print only their numbers: `core-sdk trial archive $(… -q)`.")
    ] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List trials, with their hyperparameters and the last values of their metrics.

    Columns whose values differ between the trials come first. A table shows as many as the width of the terminal
    allows; --json and --csv have all.

    NAME is a hyperparameter (lr, model.layers), a metric (accuracy, training.loss), the extreme of a metric
    (min.loss, max.accuracy), or one of id, experiment, state, steps, attempts, reason, label, name, notes. A condition
    compares names with values by = != < <= > >= contains, and joins comparisons by and, or, not and parentheses. Text
    with spaces stands in quotes. A trial that lacks a name fulfils no comparison with it.
    """
    form = choose_format(as_json, as_csv)
    if quiet and form is not Format.TABLE:
        raise typer.BadParameter("give --quiet, --json or --csv, one of them")
    home = open_home()
    with open_view(home) as view:
        found, names = choose_trials(
            view, experiment, labels=label or (), where=where, sort=sort, columns=column or (), with_archived=every
        )
        if quiet:
            sys.stdout.writelines(f"{one.row.trial_id}\n" for one in found)
            return
        if not found and form is Format.TABLE:
            any_trials = bool(view.trials(experiment))
            typer.echo("No trial fulfils the condition." if any_trials else _NO_TRIALS)
            return
    if experiment is not None and form is Format.TABLE:
        names = with_searched(names, home.experiment(experiment).read().searcher_metric, found)
    print_trials(found, names, form)


def describe(
    trial_id: TrialId,
    with_metrics: Annotated[
        bool, typer.Option("--metrics", help="Also what it reported, as `trial metrics` shows it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what is known of a trial, with the code and the machine of its newest attempt."""
    if with_metrics and as_json:
        raise typer.BadParameter("--metrics is for tables: `trial metrics --json` prints all reports")
    value, properties = describe_trial(open_home(), trial_id)
    print_one(value, properties, as_json)
    if with_metrics:
        typer.echo()
        metrics(trial_id)


def metrics(
    trial_id: TrialId,
    group: Group = None,
    metric: Metrics = None,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Also reports that later ones have superseded.")
    ] = False,
    rank: Annotated[
        str | None,
        typer.Option(
            metavar="RANK|all",
            help="Reports of this rank, or of all.",
            show_default="of each metric, the lowest that reports it",
        ),
    ] = None,
    last: Annotated[
        int | None, typer.Option(min=1, help="How many reports of each group the tables show.", show_default="20")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Also print new reports, a line each, until the trial ends.")
    ] = False,
    plot: Annotated[bool, typer.Option("--plot", help="Draw curves, as `trial plot` does.")] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Show what a trial reported."""
    form = choose_format(as_json, as_csv)
    ranks = _parse_ranks(rank)
    if plot and (form is not Format.TABLE or superseded or last is not None or follow or rank is not None):
        raise typer.BadParameter(
            "--plot draws all reports that count: give it without --json, --csv, --superseded, --rank, --last and "
            "--follow"
        )
    if form is not Format.TABLE and last is not None:
        raise typer.BadParameter("--last is for tables: --json and --csv print all reports")
    if follow and superseded:
        raise typer.BadParameter("--follow shows reports in the order in which they come: leave out --superseded")
    if plot:
        return plot_trials([trial_id], group, metric)
    home = open_home()
    home.trial(trial_id)  # an unknown one fails before anything is printed
    with open_view(home) as view:
        if not follow:
            found = reports.reports_of(view, trial_id, group, metric or (), rank=ranks, with_superseded=superseded)
            reports.print_reports(found, form, with_superseded=superseded, num_last=last or _NUM_LAST)
            if ranks is None and form is Format.TABLE:
                reports.tell_of_other_ranks(view.outline(trial_id))
            return None
    stretches = reports.follow_reports(home, trial_id, group, metric or (), ranks)
    reports.print_followed(stretches, form, num_last=last or _NUM_LAST)
    return None


def _parse_ranks(text: str | None) -> Ranks:
    return None if text is None else source_named(text)


def media_of(
    trial_id: TrialId,
    group: Annotated[str | None, typer.Option(help="Only this group.")] = None,
    kind: Annotated[str | None, typer.Option(metavar="KIND", help=f"Only this kind: {', '.join(MEDIA_KINDS)}.")] = None,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Also media that later ones have superseded.")
    ] = False,
    rank: Annotated[
        str | None,
        typer.Option(metavar="RANK|all", help="Media of this rank, or of all.", show_default="the lowest"),
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--download", metavar="DIR", help="Write the files into this directory.")
    ] = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List the images, audios and other media of a trial, or write their files into a directory.

    The names of the files say what they are: validation_samples_0_step100.png.
    """
    form = choose_format(as_json, as_csv)
    if kind is not None and kind not in MEDIA_KINDS:
        raise typer.BadParameter(f"{kind!r} is none of {', '.join(MEDIA_KINDS)}", param_hint="--kind")
    home = open_home()
    home.trial(trial_id)
    with open_view(home) as view:
        found = view.media(trial_id, rank=_parse_ranks(rank), superseded=superseded)
    found = [row for row in found if group in (None, row.group) and kind in (None, row.file.kind)]
    if directory is None:
        media.print_media(found, form)
    elif form is not Format.TABLE:
        raise typer.BadParameter("--download writes files: leave out --json and --csv")
    else:
        media.download_media(home, found, directory)


def plot_trials(
    trial_ids: TrialIds,
    group: Group = None,
    metric: ChartMetrics = None,
    formula: Formulas = None,
    x: XOption = "steps",
    group_by: GroupBy = None,
    centre: CentreOption = "mean",
    band: BandOption = "std",
    output: Output = None,
    title: Annotated[str | None, typer.Option(help="The title, in a file.", show_default="the metric")] = None,
    x_label: Annotated[str, typer.Option(metavar="TEXT", help="What is written below the axis, in a file.")] = "",
    y_label: Annotated[str, typer.Option(metavar="TEXT", help="What is written beside the axis, in a file.")] = "",
    log_y: Annotated[bool, typer.Option("--log-y", help="Make the vertical axis logarithmic, in a file.")] = False,
    size: Annotated[str, typer.Option(metavar="WIDTHxHEIGHT", help="The pixels of each chart, in a file.")] = "800x340",
) -> None:
    """Draw the curves of trials, those of one metric in one chart: in the terminal, or into a file.

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
    from core_sdk.charts.svg import Look

    if (found := re.fullmatch(r"(\d+)x(\d+)", size)) is None or not all(
        200 <= int(one) <= 10_000 for one in found.groups()
    ):
        raise typer.BadParameter(
            f"a size is two numbers of pixels from 200 on, such as 600x400, not {size!r}", param_hint="--size"
        )
    look = Look(title, x_label, y_label, log_y, int(found[1]), int(found[2]))
    return None if look == Look() else look


def logs(
    trial_id: TrialId,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Also print what comes, until the attempt ends.")
    ] = False,
    attempt: Annotated[int | None, typer.Option(min=1, help="Only this attempt.", show_default="all")] = None,
    rank: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Only what this rank wrote, where a launcher started several; may be repeated."),
    ] = None,
    tail: Annotated[int | None, typer.Option(min=0, help="Only the last lines.", show_default="all")] = None,
    head: Annotated[int | None, typer.Option(min=0, help="Only the first lines.", show_default="all")] = None,
    level: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL", help=f"Only lines of this level or a higher one: {', '.join(LEVELS)}.", show_default="all"
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object for each line, with attempt, rank, level and text.")
    ] = False,
) -> None:
    """Print the output of a trial that `core-sdk run` or `trial resume` started.

    With one --rank the lines come without their [rank=N]. Lines of the launcher itself belong to no rank.
    """
    if follow and (head is not None or level is not None or as_json):
        raise typer.BadParameter("--head, --level and --json show what is there: leave out --follow")
    if head is not None and tail is not None:
        raise typer.BadParameter("give --head or --tail, not both")
    if level is not None and level.upper() not in LEVELS:
        raise typer.BadParameter(f"{level!r} is none of {', '.join(LEVELS)}", param_hint="--level")
    print_logs(
        open_home(),
        trial_id,
        attempt=attempt,
        ranks=rank or [],
        tail=tail,
        head=head,
        level=level and level.upper(),
        as_json=as_json,
        follow=follow,
    )


def download(
    trial_id: TrialId,
    best: Annotated[bool, typer.Option("--best", help="Of its best validation.", show_default="latest")] = False,
    latest: Annotated[bool, typer.Option("--latest", help="The newest one, which is the default.")] = False,
    metric: Annotated[
        str | None, typer.Option(help="The metric that says which validation is best.", show_default="recorded")
    ] = None,
    smaller_is_better: SmallerIsBetter = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Where to.", show_default="checkpoints/ID"),
    ] = None,
) -> None:
    """Copy the files of a trial's newest or best checkpoint to a directory, and verify each of them."""
    from core_sdk.client import Tracker  # slow to import

    if best and latest:
        raise typer.BadParameter("give --best or --latest, not both")
    home = open_home()
    trial = Tracker(home.root).get_trial(trial_id)
    by = deciding_metric(home, trial.experiment_id, metric, smaller_is_better)
    chosen = (by.name, by.smaller_is_better) if by else (None, None)
    try:
        checkpoint = trial.select_checkpoint(not best, best, None, *chosen)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    typer.echo(checkpoint.download(output))


def tensorboard(
    trial_ids: TrialIds,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 6006,
    export: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write event files into this directory, and show nothing.")
    ] = None,
) -> None:
    """Show the curves and media of trials in TensorBoard, also while they train, until Ctrl-C."""
    from core_sdk.tensorboard import showing  # needs TensorBoard

    home = open_home()
    trials = [home.trial(trial_id) for trial_id in trial_ids]
    if export is not None:
        showing.export(trials, export)
        return
    try:
        showing.show(trials, port, lambda url: say(f"TensorBoard is at {url}; Ctrl-C ends it"))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--port") from None
    except KeyboardInterrupt:
        return
