"""Which checkpoints a command is about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from core_sdk.cli._arguments import parse_experiment
from core_sdk.cli._home import open_home
from core_sdk.errors import CheckpointNotFoundError
from core_sdk.tracking import View, open_view
from core_sdk.tracking.rows import CheckpointRow

StorageId = Annotated[
    str, typer.Argument(metavar="ID", help="The checkpoint's id, or its first letters.", show_default=False)
]
StorageIds = Annotated[
    list[str], typer.Argument(metavar="ID…", help="The checkpoints' ids, or their first letters.", show_default=False)
]

_MAX_CANDIDATES = 5


def checkpoint_row(view: View, text: str) -> CheckpointRow:
    """Returns the checkpoint whose id is `text`, or else begins with it, in upper or lower case.

    Raises `CheckpointNotFoundError`, or `typer.BadParameter` if several ids begin so.
    """
    try:
        return view.checkpoint(text)
    except CheckpointNotFoundError:
        rows = {row.storage_id: row for row in view.checkpoints()}
        found = sorted(one for one in rows if text and one.casefold().startswith(text.casefold()))
        if not found:
            raise
    if len(found) > 1:
        named = ", ".join(found[:_MAX_CANDIDATES]) + (", …" if len(found) > _MAX_CANDIDATES else "")
        raise typer.BadParameter(f"{len(found)} ids begin with {text!r}: {named}. Give more of the one that you mean")
    return rows[found[0]]


def checkpoint_rows(texts: Sequence[str]) -> list[CheckpointRow]:
    """Returns the checkpoints with these ids.

    All ids are looked up first, so that a mistyped one changes nothing. Raises the errors of `checkpoint_row`.
    """
    with open_view(open_home()) as view:
        return [checkpoint_row(view, text) for text in texts]


def read_rows(trial: int | None, experiment: str | None) -> list[CheckpointRow]:
    """Returns the checkpoints in the order of `checkpoint list`, including deleted ones.

    Raises `TrialNotFoundError` or `ExperimentNotFoundError`.
    """
    with open_view(open_home()) as view:
        return view.checkpoints(trial_id=trial, experiment_id=experiment_of(view, trial, experiment))


def experiment_of(view: View, trial: int | None, experiment: str | None) -> int | None:
    """Returns the experiment's id, if one is given. Raises `typer.BadParameter` if the trial belongs to another."""
    experiment_id = None if experiment is None else view.experiment(parse_experiment(experiment)).experiment_id
    if trial is not None and experiment_id not in (None, view.trial(trial).experiment_id):
        raise typer.BadParameter(f"trial {trial} does not belong to experiment {experiment}: give one of them")
    return experiment_id
