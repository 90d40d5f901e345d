"""Which checkpoints a command is about."""

from __future__ import annotations

import typer

from core_sdk.cli._arguments import parse_experiment
from core_sdk.client import Tracker
from core_sdk.tracking.rows import CheckpointRow


def read_rows(trial: int | None, experiment: str | None) -> list[CheckpointRow]:
    """In the order of `checkpoint list`, deleted ones too. Raises `TrialNotFoundError` or `ExperimentNotFoundError`."""
    with Tracker().index() as index:
        experiment_id = None if experiment is None else index.experiment(parse_experiment(experiment)).experiment_id
        if trial is not None and experiment_id not in (None, index.trial(trial).experiment_id):
            raise typer.BadParameter(f"trial {trial} does not belong to experiment {experiment}: give one of them")
        return index.checkpoints(trial_id=trial, experiment_id=experiment_id)
