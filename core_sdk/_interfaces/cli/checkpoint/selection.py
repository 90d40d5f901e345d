"""Selects the checkpoints that a command is about."""

from __future__ import annotations

import click

from core_sdk._home import View, open_view
from core_sdk._home.rows import CheckpointRow
from core_sdk._interfaces.cli._home import open_home


def checkpoint_row(storage_id: str) -> CheckpointRow:
    with open_view(open_home()) as view:
        return view.checkpoint(storage_id)


def read_rows(trial: int | None, experiment: int | None) -> list[CheckpointRow]:
    """Returns the checkpoints in the order of `checkpoint list`, including deleted ones."""
    with open_view(open_home()) as view:
        check_scope(view, trial, experiment)
        return view.checkpoints(trial_id=trial, experiment_id=experiment)


def check_scope(view: View, trial: int | None, experiment: int | None) -> None:
    """Raises `click.BadParameter` if both are given, and the trial belongs to another experiment."""
    if trial is not None and experiment not in (None, view.trial(trial).experiment_id):
        name = view.experiment(experiment).name
        raise click.BadParameter(f"trial {trial} does not belong to experiment {name}: give one of them")
