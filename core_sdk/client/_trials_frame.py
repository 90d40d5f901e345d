"""A frame of trials: one row per trial, with hyperparameters and metrics as columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from core_sdk._ground.records import Metric
from core_sdk._home import Home, View, open_view
from core_sdk._home.rows import TrialRow
from core_sdk.client._metrics import to_datetime
from core_sdk.client._orders.checkpoints import searcher_metric


def trials_frame(home: Home, experiment_ids: Iterable[int]) -> dict[str, list[Any]]:
    """Returns columns of equal length with one row per trial, as `Experiment.trials_frame` says."""
    rows: list[dict[str, Any]] = []
    with open_view(home) as view:
        figures = view.figures()
        for experiment_id in experiment_ids:
            best = _best(home, view, experiment_id)
            rows += (
                _fields(trial)
                | {f"hparams.{name}": value for name, value in _flattened(trial.hparams)}
                | best.get(trial.trial_id, {})
                | {f"last.{name}": found.last for name, found in _flattened(figures.get(trial.trial_id, {}))}
                for trial in view.trials(experiment_id)
            )
    names = dict.fromkeys(name for row in rows for name in row)
    in_order = sorted(names, key=lambda name: _KINDS.index(name.partition(".")[0]) if "." in name else -1)
    return {name: [row.get(name) for row in rows] for name in in_order}


_KINDS = ("hparams", "best", "last")


def _fields(trial: TrialRow) -> dict[str, Any]:
    return {
        "trial_id": trial.trial_id,
        "experiment_id": trial.experiment_id,
        "state": trial.state,
        "num_attempts": trial.num_attempts,
        "steps_completed": trial.steps_completed,
        "start_time": to_datetime(trial.created),
        "end_time": None if trial.ended is None else to_datetime(trial.ended),
    }


def _best(home: Home, view: View, experiment_id: int) -> dict[int, dict[str, Metric]]:
    """Returns the column with the best value of the searcher's metric, by trial."""
    metric = searcher_metric(home, experiment_id)
    if metric is None:
        return {}
    best = view.best_values(experiment_id, "validation", metric.name, smaller_is_better=metric.smaller_is_better)
    return {trial_id: {f"best.validation.{metric.name}": value} for trial_id, value in best.items()}


def _flattened(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the values of nested mappings with their dotted names."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flattened(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
