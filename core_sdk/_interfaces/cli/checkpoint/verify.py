"""`core-sdk checkpoint verify`: reads stored checkpoints back."""

from __future__ import annotations

from typing import Annotated

import click

from core_sdk._execution.steering import checkpoints
from core_sdk._home.rows import CheckpointRow
from core_sdk._interfaces.cli._failures import ExitCode
from core_sdk._interfaces.cli._home import open_home
from core_sdk._interfaces.cli._ids import MaybeStorageIds, OfExperiment, OfTrial
from core_sdk._interfaces.cli.checkpoint.selection import checkpoint_row, read_rows
from core_sdk._interfaces.render.text import printable
from core_sdk._interfaces.signatures import Option
from core_sdk.errors import CheckpointError, CheckpointNotFoundError, MissingDependencyError, StorageError


def verify(
    storage_ids: MaybeStorageIds = None,
    verify_all: Annotated[bool, Option("--all", help="All that are not deleted.")] = False,
    trial: OfTrial = None,
    experiment: OfExperiment = None,
) -> None:
    """Read every file of checkpoints and compare it with what was written; the exit status is 1 if one is damaged.

    A checkpoint whose storage cannot be reached is reported as unreachable, and the exit status is 1 too.
    """
    if (not storage_ids) != verify_all or (storage_ids and (trial, experiment) != (None, None)):
        raise click.BadParameter("give an ID, or --all with --trial or --experiment to choose among them")
    if storage_ids:
        rows = list(map(checkpoint_row, storage_ids))
    else:
        rows = [row for row in read_rows(trial, experiment) if row.state != "DELETED" or row.is_missing]
    num_good = sum(_verify_row(row) for row in rows)
    click.echo(f"{num_good} of {len(rows)} checkpoints are whole")
    if num_good < len(rows):
        raise click.exceptions.Exit(ExitCode.FAILURE)


def _verify_row(row: CheckpointRow) -> bool:
    """Prints one line. Returns whether the checkpoint is whole."""
    try:
        checkpoints.verify(open_home(), row.storage_id)
    except (StorageError, MissingDependencyError, OSError) as error:
        result = f"unreachable: {error}"
    except CheckpointNotFoundError:
        result = f"missing: it is not in {row.storage}"
    except CheckpointError as error:
        result = f"damaged: {error}"
    else:
        num_files = sum(not name.endswith("/") for name in row.resources)
        click.echo(f"{row.storage_id}  whole: {num_files} files, {row.size_bytes:,} bytes")
        return True
    click.echo(f"{row.storage_id}  {printable(result)}")
    return False
