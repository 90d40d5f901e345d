"""`core-sdk checkpoint …`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import click

from core_sdk._execution.steering import checkpoints
from core_sdk._ground.records import fields_of, format_number, strict_json
from core_sdk._home import Home
from core_sdk._home.finding.best import checkpoints_best_first
from core_sdk._home.rows import CheckpointRow
from core_sdk._interfaces.cli._arguments import Force, Since, Yes
from core_sdk._interfaces.cli._group import command_group
from core_sdk._interfaces.cli._home import in_home, open_home
from core_sdk._interfaces.cli._ids import OfExperiment, OfTrial, StorageId, StorageIds
from core_sdk._interfaces.cli.checkpoint import gc, verify
from core_sdk._interfaces.cli.checkpoint.export import export
from core_sdk._interfaces.cli.checkpoint.selection import checkpoint_row, read_rows
from core_sdk._interfaces.render.form import AsCsv, AsJson, Fields, Limit, choose_form
from core_sdk._interfaces.render.output import Properties, confirm, limited, print_one, print_rows
from core_sdk._interfaces.render.rows import properties_of
from core_sdk._interfaces.render.tables import Column
from core_sdk._interfaces.render.text import format_size, format_time
from core_sdk._interfaces.signatures import Argument, Option
from core_sdk.errors import CoreSDKError, ExperimentNotFoundError, RecordDamagedError

app = command_group()

app.command()(gc.gc)
app.command(reads_homes=True)(verify.verify)
app.command(reads_homes=True)(export)

_COLUMNS = [
    Column[CheckpointRow]("ID", lambda row: row.storage_id),
    Column[CheckpointRow]("Trial", lambda row: row.trial_id, is_number=True),
    Column[CheckpointRow]("Steps", lambda row: row.steps_completed, is_number=True),
    Column[CheckpointRow]("State", lambda row: f"{row.state} pinned" if row.is_pinned else row.state),
    Column[CheckpointRow]("Size", lambda row: format_size(row.size_bytes), is_number=True),
    Column[CheckpointRow]("Stored", lambda row: format_time(row.time)),
]
_METRIC_AT = 3


@app.command("list", reads_homes=True)
def list_checkpoints(
    trial: OfTrial = None,
    experiment: OfExperiment = None,
    deleted: Annotated[bool, Option("--deleted", help="Also those that were deleted.")] = False,
    metric: Annotated[
        str | None,
        Option(help="The validation metric that is shown with each checkpoint.", show_default="the searcher's"),
    ] = None,
    best: Annotated[
        int | None,
        Option(min=1, metavar="N", help="Only the N best of the experiment, by its searcher's metric."),
    ] = None,
    since: Since = None,
    limit: Limit = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    fields: Fields = "",
) -> None:
    """List checkpoints: the newest trial's first, and of each trial the newest first.

    Within a trial they are in the order of its saves, even if the clock was wrong. With --best the metric decides.
    The metric is what the same attempt validated at the step of the checkpoint.
    """
    form = choose_form(as_json, as_csv, fields)
    shown = [row for row in read_rows(trial, experiment) if deleted or row.state != "DELETED"]
    shown = [row for row in shown if since is None or row.time >= since]
    if best is not None:
        shown = _best_first(shown, experiment, metric)[:best]
    known = {name for row in shown for name in row.metrics}
    if metric is not None and metric not in known:
        names = ", ".join(sorted(known)) or "none"
        raise click.BadParameter(f"no checkpoint was validated with the metric {metric!r}. Those known are: {names}")
    columns = [*_COLUMNS[:_METRIC_AT], *_metric_column(shown, metric), *_COLUMNS[_METRIC_AT:]]
    shown, form = limited(shown, limit, form, are_ordered=True)
    print_rows(shown, CheckpointRow, columns, form, f"No checkpoints {in_home(open_home())}.")


def _best_first(rows: Sequence[CheckpointRow], experiment: int | None, chosen: str | None) -> list[CheckpointRow]:
    """Returns the checkpoints that have a number for the metric of the experiment's searcher, the best first."""
    if experiment is None or chosen is not None:
        raise click.BadParameter("--best needs --experiment, whose searcher says what is better, and no --metric")
    metric = open_home().experiment(experiment).read().searcher_metric
    if metric is None:
        raise click.BadParameter(f"experiment {experiment} has no searcher's metric that says which is best")
    return checkpoints_best_first(rows, metric)


def _metric_column(rows: Sequence[CheckpointRow], chosen: str | None) -> list[Column[CheckpointRow]]:
    """Returns the column of the chosen metric, or else of each experiment's own, with names if these differ."""
    home = open_home()
    experiments = {row.experiment_id for row in rows if row.metrics}
    names = {one: chosen or _searcher_metric(home, one) for one in experiments}
    different = sorted({name for name in names.values() if name is not None})

    def text(row: CheckpointRow) -> str:
        name = names.get(row.experiment_id)
        if name is None or name not in row.metrics:
            return ""
        return f"{name} " * (len(different) > 1) + format_number(row.metrics[name])

    title = different[0] if len(different) == 1 else "Metric"
    return [Column(title, text, is_number=True)] if different else []


def _searcher_metric(home: Home, experiment_id: int) -> str | None:
    try:
        metric = home.experiment(experiment_id).read().searcher_metric
    except (ExperimentNotFoundError, RecordDamagedError):
        return None  # its checkpoints are listed all the same
    return metric.name if metric else None


@app.command(reads_homes=True)
def describe(
    storage_id: StorageId,
    tensors: Annotated[
        bool, Option("--tensors", help="List its tensors with their types and shapes, without loading them.")
    ] = False,
    as_json: AsJson = False,
    fields: Fields = "",
) -> None:
    """Show what is known of a checkpoint."""
    form = choose_form(as_json, fields=fields)
    row = checkpoint_row(storage_id)
    if not tensors:
        print_one(row, _properties(row), form)
        return
    from core_sdk.client import Checkpoint  # slow to import

    found = Checkpoint(open_home(), row).tensors()
    layouts = ["" if one.layout == "strided" else f" {one.layout}" for one in found]
    listed = [
        f"{one.name}: {one.dtype} {list(one.shape)}{layout}, in {one.file}"
        for one, layout in zip(found, layouts, strict=True)
    ]
    print_one({**fields_of(row), "tensors": found}, {**_properties(row), "Tensors": listed}, form)


@app.command(reads_homes=True)
def download(
    storage_id: StorageId,
    directory: Annotated[
        Path | None, Argument(metavar="DIR", help="The directory for the files.", show_default="checkpoints/ID")
    ] = None,
    output: Annotated[Path | None, Option("--output", "-o", metavar="DIR", help="The same.")] = None,
) -> None:
    """Copy a checkpoint's files to a directory, and verify each of them.

    Files that are there already and whole are not copied again. After an interruption the same command goes on where
    it stopped, within large files too.
    """
    if directory is not None and output is not None:
        raise click.BadParameter("give the directory once")
    from core_sdk.client import Checkpoint  # slow to import

    click.echo(Checkpoint(open_home(), checkpoint_row(storage_id)).download(directory or output))


@app.command(reads_homes=True)
def pin(
    storage_ids: StorageIds,
    note: Annotated[str, Option(help="Why.", show_default=False)] = "",
) -> None:
    """Keep checkpoints from being deleted, until they are unpinned."""
    for storage_id in storage_ids:
        checkpoints.pin(open_home(), storage_id, note)
        click.echo(f"pinned checkpoint {storage_id}")


@app.command(reads_homes=True)
def unpin(storage_ids: StorageIds) -> None:
    """Let checkpoints be deleted again."""
    for storage_id in storage_ids:
        was_pinned = checkpoints.unpin(open_home(), storage_id)
        click.echo(f"{'unpinned checkpoint' if was_pinned else 'not pinned: checkpoint'} {storage_id}")


@app.command(reads_homes=True)
def delete(
    storage_id: StorageId,
    glob: Annotated[
        list[str] | None,
        Option(help='Only files and directories that match, such as "optimizer" or "**/*.tmp"; repeatable.'),
    ] = None,
    force: Force = False,
    yes: Yes = False,
) -> None:
    """Delete a checkpoint's files; `checkpoint list --deleted` still shows that it was there.

    If its files have vanished already, its trial no longer counts on them. A checkpoint that is pinned, that a trial
    began with, that a running trial uses, or that is a version of a model is not deleted; --force overrides the first
    two.
    """
    home = open_home()
    before = checkpoint_row(storage_id)
    what = f"{', '.join(glob)} in checkpoint" if glob else "checkpoint"
    confirm(f"Delete {what} {storage_id} of trial {before.trial_id}?", yes)
    if glob:
        checkpoints.delete_files(home, storage_id, glob, force=force)
    else:
        checkpoints.delete(home, storage_id, force=force)
    after = checkpoint_row(storage_id)
    if glob and after.resources == before.resources and after.state != "DELETED":
        advice = f"`core-sdk checkpoint describe {storage_id}` lists its files."
        raise CoreSDKError(f"nothing in checkpoint {storage_id} matches {', '.join(glob)}. {advice}")
    if after.state == "DELETED":
        click.echo(f"deleted checkpoint {storage_id}")
    else:
        click.echo(f"checkpoint {storage_id} has {len(after.resources)} files and directories left")


def _properties(row: CheckpointRow) -> Properties:
    special = {
        "trial_id": f"{row.trial_id} (attempt {row.attempt})",
        "attempt": {},
        "is_pinned": (row.pin_note or "yes") if row.is_pinned else "",
        "size_bytes": format_size(row.size_bytes),
        "metrics": [f"{name}: {format_number(value)}" for name, value in row.metrics.items()],
        "metadata": strict_json(row.metadata),
        "resources": [f"{name} ({format_size(size)})" for name, size in row.resources.items()],
    }
    return properties_of(row, special)
