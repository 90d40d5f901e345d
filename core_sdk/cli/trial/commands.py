"""`core-sdk trial …`."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from core_sdk.charts.trials import trial_charts
from core_sdk.cli._arguments import (
    Detach,
    Force,
    Metrics,
    NewLabels,
    Notes,
    Output,
    Seed,
    SmallerIsBetter,
    TrialId,
    TrialIds,
    TrialName,
    Yes,
    parse_experiment,
)
from core_sdk.cli._command_after_dashes import CommandAfterDashes
from core_sdk.cli._each import for_each
from core_sdk.cli._group import command_group
from core_sdk.cli._grouping import BandOption, CentreOption, GroupBy, parse_grouping
from core_sdk.cli._home import open_tracker
from core_sdk.cli._messages import say
from core_sdk.cli._resuming import what_resume_does
from core_sdk.cli.render.drawing import check_format, draw_charts, num_buckets
from core_sdk.cli.render.json import print_object
from core_sdk.cli.render.output import AsCsv, AsJson, Format, choose_format, confirm, print_one
from core_sdk.cli.render.text import printable
from core_sdk.cli.trial import media, naming, reports
from core_sdk.cli.trial.description import describe_trial
from core_sdk.cli.trial.listing import choose_trials, print_trials
from core_sdk.cli.trial.logs import print_logs
from core_sdk.errors import CoreSDKError, MissingDependencyError
from core_sdk.experiments.killing import kill_trial
from core_sdk.records import MEDIA_KINDS, RecordedKeep
from core_sdk.tracking import HomeTracker, TrialFolder
from core_sdk.tracking.attempts.running import await_end
from core_sdk.tracking.log_levels import LEVELS
from core_sdk.tracking.rows import Ranks

app = command_group()

Group = Annotated[
    str | None, typer.Option(help="Only this group; the profiler's groups are shown only when asked for.")
]

_NUM_LAST = 20
_POLL_INTERVAL_S = 0.1
# Long enough for a save of the usual size; `trial pause --wait` waits for longer ones.
_STOPPING_WAIT_S = 60.0
_NO_TRIALS = "No trials yet: `core-sdk run -- python train.py` starts one."


@app.command("list")
def list_trials(
    experiment: Annotated[str | None, typer.Option(help="Only those of this experiment, by id or name.")] = None,
    where: Annotated[
        str, typer.Option(metavar="CONDITION", help="Only those that fulfil it: 'lr>0.01 and state=COMPLETED'.")
    ] = "",
    label: Annotated[
        list[str] | None, typer.Option(help="Only those with this label; may be repeated: with all of them.")
    ] = None,
    sort: Annotated[
        str, typer.Option(metavar="NAME", help="Order by this hyperparameter or metric; -NAME: the largest first.")
    ] = "",
    column: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Show this as the first column; may be repeated.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also those that are archived.")] = False,
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
    with open_tracker().view() as view:
        experiment_id = None if experiment is None else view.experiment(parse_experiment(experiment)).experiment_id
        found, names = choose_trials(
            view,
            experiment_id,
            labels=label or (),
            where=where,
            sort=sort,
            columns=column or (),
            with_archived=every,
        )
        if not found and form is Format.TABLE:
            any_trials = bool(view.trials(experiment_id))
            typer.echo("No trial is like that." if any_trials else _NO_TRIALS)
            return
    print_trials(found, names, form)


@app.command()
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
    value, properties = describe_trial(open_tracker(), trial_id)
    print_one(value, properties, as_json)
    if with_metrics:
        typer.echo()
        metrics(trial_id)


@app.command()
def metrics(
    trial_id: TrialId,
    group: Group = None,
    metric: Metrics = None,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Also reports that a later attempt has superseded.")
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
    tracker = open_tracker()
    with tracker.view() as view:
        view.trial(trial_id)  # an unknown one fails before anything is printed
        if not follow:
            found = reports.reports_of(view, trial_id, group, metric or (), rank=ranks, with_superseded=superseded)
            reports.print_reports(found, form, with_superseded=superseded, num_last=last or _NUM_LAST)
            if ranks is None and form is Format.TABLE:
                reports.tell_of_other_ranks(view.reporting_ranks(trial_id))
            return None
    stretches = reports.follow_reports(tracker, trial_id, group, metric or (), ranks)
    reports.print_followed(stretches, form, num_last=last or _NUM_LAST)
    return None


def _parse_ranks(text: str | None) -> Ranks:
    if text is None:
        return None
    if text == "all":
        return "all"
    if not text.isdecimal():
        raise typer.BadParameter(f"{text!r} is no rank: give a number, counted from 0, or all", param_hint="--rank")
    return int(text)


@app.command("media")
def media_of(
    trial_id: TrialId,
    group: Annotated[str | None, typer.Option(help="Only this group.")] = None,
    kind: Annotated[str | None, typer.Option(metavar="KIND", help=f"Only this kind: {', '.join(MEDIA_KINDS)}.")] = None,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Also media that a later attempt has superseded.")
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
    tracker = open_tracker()
    with tracker.view() as view:
        view.trial(trial_id)
        found = view.media(trial_id, rank=_parse_ranks(rank), superseded=superseded)
    found = [row for row in found if group in (None, row.group) and kind in (None, row.file.kind)]
    if directory is None:
        media.print_media(found, form)
    elif form is not Format.TABLE:
        raise typer.BadParameter("--download writes files: leave out --json and --csv")
    else:
        media.download_media(tracker, found, directory)


@app.command("plot")
def plot_trials(
    trial_ids: TrialIds,
    group: Group = None,
    metric: Metrics = None,
    group_by: GroupBy = None,
    centre: CentreOption = "mean",
    band: BandOption = "std",
    output: Output = None,
) -> None:
    """Draw the curves of trials, those of one metric in one chart: in the terminal, or into a file.

    Steps from which a trial was resumed are marked if it is the only one. With --group-by, trials with the same value
    are one curve, as `core-sdk compare` explains.
    """
    trial_ids = list(dict.fromkeys(trial_ids))
    grouping = parse_grouping(group_by, centre, band, in_terminal=output is None)
    tracker = open_tracker()
    with tracker.view() as view:
        rows = [view.trial(trial_id) for trial_id in trial_ids]
        check_format(output)
        max_buckets = num_buckets(output)
        if grouping is not None:
            draw_charts(grouping.charts(tracker, view, rows, max_buckets, group=group, metrics=metric or ()), output)
            return
        draw_charts(trial_charts(view, trial_ids, group=group, metrics=metric or (), max_buckets=max_buckets), output)


@app.command()
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
) -> None:
    """Print the output of a trial that `core-sdk run` or `trial resume` started.

    With one --rank the lines come without their [rank=N]. Lines of the launcher itself belong to no rank.
    """
    if follow and (head is not None or level is not None):
        raise typer.BadParameter("--head and --level show what is there: leave out --follow")
    if head is not None and tail is not None:
        raise typer.BadParameter("give --head or --tail, not both")
    if level is not None and level.upper() not in LEVELS:
        raise typer.BadParameter(f"{level!r} is none of {', '.join(LEVELS)}", param_hint="--level")
    print_logs(
        open_tracker(),
        trial_id,
        attempt=attempt,
        ranks=rank or [],
        tail=tail,
        head=head,
        level=level and level.upper(),
        follow=follow,
    )


@app.command()
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
    if metric is not None and smaller_is_better is None:
        smaller_is_better = True
    trial = Tracker(open_tracker().home.root).get_trial(trial_id)
    try:
        checkpoint = trial.select_checkpoint(
            latest=not best, best=best, sort_by=metric, smaller_is_better=smaller_is_better
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    typer.echo(checkpoint.download(output))


@app.command()
def pause(
    trial_id: TrialId,
    wait: Annotated[bool, typer.Option("--wait", help="Return when it has stopped.")] = False,
) -> None:
    """Ask a running trial to save a checkpoint and stop.

    The trials of a submitted experiment are paused together, by `core-sdk experiment pause`.
    """
    tracker = open_tracker()
    attempt = tracker.request_stop(trial_id, "core-sdk trial pause")
    say(f"asked trial {trial_id} to stop: it does when it next calls should_preempt()")
    if wait:
        while any(row.is_running for row in tracker.attempts(trial_id) if row.attempt == attempt):
            time.sleep(_POLL_INTERVAL_S)
        say(f"trial {trial_id} has stopped: {what_resume_does(tracker.home.trial(trial_id))}")


@app.command()
def kill(trial_id: TrialId, as_json: AsJson = False) -> None:
    """Kill a running trial with all its processes, at once: it saves nothing, and is canceled.

    `trial pause` asks it to save a checkpoint and stop. `trial resume` goes on with a trial that was killed.
    """
    kill_trial(open_tracker(), trial_id, "core-sdk trial kill")
    if as_json:
        print_object({"trial_id": trial_id, "state": "CANCELED"})
    else:
        say(f"killed trial {trial_id}")


@app.command(cls=CommandAfterDashes)
def resume(
    trial_id: TrialId,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="What to run from now on.", show_default="the recorded command"),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also one that is completed.")] = False,
    detach: Detach = False,
) -> None:
    """Resume a trial from its newest good checkpoint.

    The same command runs in the same directory, with the environment variables that were recorded. A command after
    `--` replaces the recorded one from now on, for example to train on another number of ranks.

    If the trial was asked to pause and still runs, this waits up to a minute for its end.
    """
    from core_sdk.agent.starting import Agent

    agent = Agent()  # it imports what it needs while we do
    from core_sdk.cli.running.attempt import run_attempt
    from core_sdk.tracking.attempts import starting

    tracker = open_tracker()
    folder = tracker.home.trial(trial_id)
    tracker.check_steered_alone(trial_id)
    _await_stop(folder)
    raise typer.Exit(
        run_attempt(agent, lambda: starting.resume(folder, command or (), is_again=again), is_detached=detach)
    )


def _await_stop(folder: TrialFolder) -> None:
    """Waits a limited time for the end of an attempt that was asked to stop; does not wait for any other."""
    attempt = folder.running_attempt()
    if attempt is not None and folder.read_stop_request(attempt) is not None:
        say(f"trial {folder.trial_id} is stopping: waiting for its end")
        await_end(folder, _STOPPING_WAIT_S)


@app.command("continue", cls=CommandAfterDashes)
def continue_(
    trial_id: TrialId,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="What to run.", show_default="the command of the other trial"),
    ] = None,
    hparam: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Another value of a hyperparameter; may be repeated."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The checkpoint to begin with.", show_default="the newest good one"),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="all|model|NAME,…",
            help="What to keep of the checkpoint: all, the weights alone, or the parts of these names.",
            show_default="as the script says",
        ),
    ] = None,
    seed: Seed = None,
    trial_name: TrialName = None,
    notes: Notes = "",
    label: NewLabels = None,
    detach: Detach = False,
) -> None:
    """Start a new trial that begins with the newest good checkpoint of another trial.

    It has the same command, hyperparameters and seed, but for what is given here, and counts its steps from 0. The
    other trial stays as it is. --keep has precedence over what the script says: `State.restore(keep=…)`,
    `Trainer.fit(keep=…)` or `PyTorchTrainer(keep=…)`. A script that restores whole checkpoints fails with --keep model.
    """
    from core_sdk.agent.starting import Agent

    agent = Agent()
    from core_sdk.cli.running.attempt import run_attempt
    from core_sdk.cli.running.hparams import parse_hparams
    from core_sdk.tracking.attempts.definition import Description
    from core_sdk.tracking.attempts.starting import continue_from

    described = Description(trial_name, notes, label or [])
    hparams, kept = parse_hparams(hparam or []), None if keep is None else _parse_keep(keep)
    folder = open_tracker().home.trial(trial_id)

    def start() -> Any:
        return continue_from(
            folder,
            command or (),
            hparams=hparams,
            storage_id=checkpoint,
            keep=kept,
            seed=seed,
            described=described,
        )

    raise typer.Exit(run_attempt(agent, start, is_detached=detach))


def _parse_keep(text: str) -> RecordedKeep:
    if text == "all":
        return "all"
    if text == "model":
        return "model"
    names = [name.strip() for name in text.split(",")]
    if "" in names:
        raise typer.BadParameter(
            f"{text!r} has an empty name: give all, model, or names with commas between them", param_hint="--keep"
        )
    return names


@app.command()
def archive(trial_ids: TrialIds, as_json: AsJson = False) -> None:
    """Hide trials that do not run from lists; `list --all` shows them.

    A trial that is resumed is in lists again.
    """
    _archive(trial_ids, True, as_json)


@app.command()
def unarchive(trial_ids: TrialIds, as_json: AsJson = False) -> None:
    """Show trials in lists again."""
    _archive(trial_ids, False, as_json)


def _archive(trial_ids: list[int], is_archived: bool, as_json: bool) -> None:
    tracker = open_tracker()

    def change(trial_id: int) -> str:
        tracker.archive_trial(trial_id, is_archived=is_archived)
        return "archived" if is_archived else "unarchived"

    for_each("trial", trial_ids, change, as_json)


@app.command()
def delete(
    trial_ids: TrialIds,
    force: Force = False,
    yes: Yes = False,
) -> None:
    """Delete trials, their records and their checkpoints.

    A trial with a checkpoint that is pinned, that another trial began with, that a running trial uses, or that is a
    version of a model is not deleted; --force overrides the first two.
    """
    tracker = open_tracker()
    trial_ids = list(dict.fromkeys(trial_ids))
    for trial_id in trial_ids:
        tracker.attempts(trial_id)  # an unknown one fails before anything is asked
    trials = [f"trial {trial_id}{_at_a_glance(tracker, trial_id)}" for trial_id in trial_ids]
    if len(trials) > 1:
        typer.echo("\n".join(trials), err=True)
    what = f"{trials[0]}, all its" if len(trials) == 1 else f"these {len(trials)} trials, all their"
    confirm(f"Delete {what} records and checkpoints?", yes)
    for trial_id in trial_ids:
        tracker.delete_trial(trial_id, is_forced=force)
        typer.echo(f"deleted trial {trial_id}")


def _at_a_glance(tracker: HomeTracker, trial_id: int) -> str:
    """Returns a short description by which a person notices a mistyped id; empty for a trial that cannot be read."""
    try:
        with tracker.view() as view:
            row = view.trial(trial_id)
    except CoreSDKError:
        return ""
    return f" of experiment {printable(row.experiment_name)!r} ({row.state}, {row.steps_completed:,} steps)"


@app.command()
def tensorboard(
    trial_id: TrialId,
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 6006,
) -> None:
    """Show a trial's curves in TensorBoard, until Ctrl-C."""
    if importlib.util.find_spec("tensorboard") is None:
        raise MissingDependencyError("tensorboard", extra="tensorboard", purpose="trial tensorboard")
    from core_sdk.processes import exit_code  # slow to import, like the next one
    from core_sdk.tensorboard import write_event_files

    tracker = open_tracker()
    directory = tracker.tensorboard_directory(trial_id)
    # An attempt that was killed may not have written all of its event files.
    write_event_files(tracker.journals(trial_id), directory)
    say(f"TensorBoard shows {directory}; Ctrl-C ends it")
    program = [sys.executable, "-m", "tensorboard.main", "--logdir", str(directory), "--port", str(port)]
    with contextlib.suppress(KeyboardInterrupt):
        raise typer.Exit(exit_code(subprocess.call(program)))


for command in (naming.rename, naming.note, naming.label):
    app.command()(command)
