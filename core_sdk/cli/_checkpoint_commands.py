"""`core-sdk checkpoint …`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from core_sdk.cli._group import command_group
from core_sdk.cli._output import AsCsv, AsJson, choose_format, confirm, print_one, print_rows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from core_sdk.cli._tables import Column
    from core_sdk.tracking.rows import CheckpointRow

app = command_group("Checkpoints: files and metadata under one id.")

StorageId = Annotated[str, typer.Argument(metavar="ID", help="The checkpoint's id.", show_default=False)]


@app.command("list")
def list_checkpoints(
    trial: Annotated[int | None, typer.Option(help="Only those of this trial.")] = None,
    experiment: Annotated[str | None, typer.Option(help="Only those of this experiment, by id or name.")] = None,
    deleted: Annotated[bool, typer.Option("--deleted", help="Also those that were deleted.")] = False,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """List checkpoints, the newest first."""
    from core_sdk.cli._experiment_commands import parse_experiment
    from core_sdk.client import Tracker
    from core_sdk.tracking.rows import CheckpointRow

    form = choose_format(as_json, as_csv)
    with Tracker().index() as index:
        if trial is not None:
            index.trial(trial)
        experiment_id = None if experiment is None else index.experiment(parse_experiment(experiment)).experiment_id
        rows = index.checkpoints(trial_id=trial, experiment_id=experiment_id)
    shown = [row for row in rows if deleted or row.state != "DELETED"]
    print_rows(shown, CheckpointRow, _columns, form, "No checkpoints.")


@app.command()
def describe(storage_id: StorageId, as_json: AsJson = False) -> None:
    """Show what is known of a checkpoint."""
    from core_sdk.client import Tracker

    with Tracker().index() as index:
        row = index.checkpoint(storage_id)
    print_one(row, lambda: _properties(row), as_json)


@app.command()
def download(
    storage_id: StorageId,
    to: Annotated[Path | None, typer.Option(help="The directory for the files.", show_default="checkpoints/ID")] = None,
) -> None:
    """Copy a checkpoint's files to a directory, each verified."""
    from core_sdk.client import Tracker

    typer.echo(Tracker().get_checkpoint(storage_id).download(to))


@app.command()
def verify(storage_id: StorageId) -> None:
    """Read every file of a checkpoint and compare it with what was written; status 1 if one is damaged."""
    from core_sdk.client import Tracker

    checkpoint = Tracker().get_checkpoint(storage_id)
    checkpoint.verify()
    num_files = sum(not name.endswith("/") for name in checkpoint.resources)
    typer.echo(f"checkpoint {storage_id} is whole: {num_files} files, {checkpoint.size_bytes:,} bytes")


@app.command()
def delete(
    storage_id: StorageId,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete a checkpoint's files; `checkpoint list --deleted` remembers that it was there.

    Also for one whose files have vanished, so that its trial no longer counts on them.
    """
    from core_sdk.client import Tracker
    from core_sdk.tracking.deletion import delete_checkpoint

    tracker = Tracker()
    with tracker.index() as index:
        row = index.checkpoint(storage_id)
    confirm(f"Delete checkpoint {storage_id} of trial {row.trial_id}?", yes)
    delete_checkpoint(tracker.home.trial(row.trial_id), row.storage, storage_id)
    typer.echo(f"deleted checkpoint {storage_id}")


def _columns() -> Sequence[Column[CheckpointRow]]:
    from core_sdk.cli._tables import Column
    from core_sdk.cli._text import format_size, format_time

    return [
        Column("ID", lambda row: row.storage_id),
        Column("Trial", lambda row: str(row.trial_id), is_number=True),
        Column("Steps", lambda row: str(row.steps_completed), is_number=True),
        Column("Size", lambda row: format_size(row.size_bytes), is_number=True),
        Column("Stored", lambda row: format_time(row.time)),
        Column("State", lambda row: row.state),
    ]


def _properties(row: CheckpointRow) -> Mapping[str, str]:
    from core_sdk.cli import _json
    from core_sdk.cli._text import format_size, format_time

    return {
        "Checkpoint": row.storage_id,
        "Trial": f"{row.trial_id} (attempt {row.attempt})",
        "Experiment": str(row.experiment_id),
        "Steps": str(row.steps_completed),
        "State": row.state,
        "Stored": format_time(row.time),
        "Storage": row.storage,
        "Size": format_size(row.size_bytes),
        "Metadata": _json.encode(row.metadata),
        "Files": "\n".join(f"{name} ({format_size(size)})" for name, size in row.resources.items()),
    }
